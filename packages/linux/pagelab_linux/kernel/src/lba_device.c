// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/pagelab-lba. An ioctl() on it takes the descriptor of a block device
 * and gives one that can be mapped: once, by the process that asked, private
 * and only for reading. mmap() writes each block's address into the entry
 * beside its PTE.
 *
 * The device is opened exclusively, so that no two page tables hold addresses
 * of one block, and no file system moves blocks below them.
 */
#include <linux/anon_inodes.h>
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mman.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>

#include "core.h"
#include "lba.h"

DEFINE_STATIC_KEY_FALSE(pagelab_lba_on);
DEFINE_PER_CPU(unsigned long [LBA_NR_STATS], lba_stats);

static LIST_HEAD(files);
static DEFINE_MUTEX(files_mutex);

bool lba_files_open(void)
{
	return !list_empty_careful(&files);
}

int lba_for_each_file(int (*visit)(struct lba_file *file))
{
	struct lba_file *file;
	int error = 0;

	mutex_lock(&files_mutex);
	list_for_each_entry(file, &files, list) {
		error = visit(file);
		if (error)
			break;
	}
	mutex_unlock(&files_mutex);
	return error;
}

/* Entries for the range, and bits for the tables above. */
static int make_table(struct lba_file *file, struct vm_area_struct *vma)
{
	unsigned long start = ALIGN_DOWN(vma->vm_start, PMD_SIZE);
	unsigned long nr = (vma->vm_end - start) >> PAGE_SHIFT;
	unsigned long pmds = DIV_ROUND_UP(nr, PTRS_PER_PTE);
	unsigned long puds = DIV_ROUND_UP(pmds, PTRS_PER_PMD);
	unsigned long index = (vma->vm_start - start) >> PAGE_SHIFT;
	u64 block = (u64)vma->vm_pgoff << PAGE_SECTORS_SHIFT;

	/* A table of more than INT_MAX bytes is refused, without a warning. */
	file->entries = kvcalloc(nr, sizeof(*file->entries),
				 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	file->pmds = bitmap_zalloc(pmds, GFP_KERNEL_ACCOUNT);
	file->puds = bitmap_zalloc(puds, GFP_KERNEL_ACCOUNT);
	if (!file->entries || !file->pmds || !file->puds ||
	    pagelab_left_out(PAGELAB_NO_MEMORY))
		return -ENOMEM;
	if (pagelab_left_out(PAGELAB_LBA_BLOCK))
		block += PAGE_SECTORS;
	for (; index < nr; index++, block += PAGE_SECTORS)
		file->entries[index] = block << ENTRY_BLOCK_SHIFT | ENTRY_LBA;
	file->start = start;
	/* Pairs with kpted, which reads it first. */
	smp_store_release(&file->nr, nr);
	return 0;
}

static void free_table(struct lba_file *file)
{
	kvfree(file->entries);
	bitmap_free(file->pmds);
	bitmap_free(file->puds);
	file->entries = NULL;
	file->pmds = NULL;
	file->puds = NULL;
}

static int lba_mmap(struct file *opened, struct vm_area_struct *vma)
{
	struct lba_file *file = opened->private_data;
	loff_t pages = i_size_read(file->mapping->host) >> PAGE_SHIFT;
	int error;

	if (vma->vm_mm != file->mm)
		return -EPERM;
	if (vma->vm_flags & (VM_SHARED | VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EACCES;
	if (vma->vm_pgoff >= pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -ENXIO;
	if (file->nr)
		return -EBUSY;
	error = make_table(file, vma);
	if (error) {
		free_table(file);
		return error;
	}
	vm_flags_mod(vma, VM_DONTEXPAND, VM_MAYWRITE | VM_MAYEXEC);
	vma->vm_ops = &pagelab_lba_vm_ops;
	return 0;
}

/*
 * No: nothing copies a page that is without metadata. Mappings of which the
 * child is to have nothing do not come here. dup_mm() knows no other error.
 */
int __pagelab_lba_fork(void)
{
	pr_info_ratelimited("pagelab-lba: fork() refused: use MADV_DONTFORK\n");
	return -ENOMEM;
}

/* All mappings are gone. What is in the page cache goes with the inode. */
static int lba_release(struct inode *inode, struct file *opened)
{
	struct lba_file *file = opened->private_data;

	mutex_lock(&files_mutex);
	list_del(&file->list);
	mutex_unlock(&files_mutex);
	lba_wake_kpoold();
	bdev_fput(file->device);
	mmdrop(file->mm);
	free_table(file);
	kfree(file);
	return 0;
}

static const struct file_operations file_operations = {
	.owner		= THIS_MODULE,
	.mmap		= lba_mmap,
	.release	= lba_release,
	.llseek		= noop_llseek,
};

/* Opens anew what the descriptor is of, for ourselves alone. */
static struct file *open_device(int descriptor, void *holder)
{
	CLASS(fd, of)(descriptor);
	struct inode *inode;

	if (!fd_file(of))
		return ERR_PTR(-EBADF);
	inode = file_inode(fd_file(of));
	if (!S_ISBLK(inode->i_mode))
		return ERR_PTR(-ENOTBLK);
	if (!(fd_file(of)->f_mode & FMODE_READ))
		return ERR_PTR(-EBADF);
	return bdev_file_open_by_dev(inode->i_rdev, BLK_OPEN_READ, holder,
				     NULL);
}

/* What was written by way of the page cache is to be on the device. */
static int check_device(struct lba_file *file)
{
	struct block_device *device = file_bdev(file->device);
	u64 sectors = bdev_nr_sectors(device);

	if (bdev_logical_block_size(device) > PAGE_SIZE)
		return -EINVAL;
	if (sectors < PAGE_SECTORS)
		return -ENXIO;
	if (sectors > BIT_ULL(ENTRY_BLOCK_BITS))
		return -EFBIG;
	return sync_blockdev(device);
}

static struct lba_file *make_file(int descriptor)
{
	struct lba_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	int error;

	if (!file)
		return ERR_PTR(-ENOMEM);
	file->device = open_device(descriptor, file);
	if (IS_ERR(file->device)) {
		error = PTR_ERR(file->device);
		goto free;
	}
	error = check_device(file);
	if (error)
		goto close;
	file->unit = lba_unit_of(file_bdev(file->device)->bd_disk->node_id);
	file->mm = current->mm;
	mmgrab(file->mm);
	return file;
close:
	bdev_fput(file->device);
free:
	kfree(file);
	return ERR_PTR(error);
}

static void unmake_file(struct lba_file *file)
{
	bdev_fput(file->device);
	mmdrop(file->mm);
	kfree(file);
}

static long open_mappable(int descriptor)
{
	struct lba_file *file = make_file(descriptor);
	struct file *opened;
	struct inode *inode;
	int number;

	if (IS_ERR(file))
		return PTR_ERR(file);
	number = get_unused_fd_flags(O_CLOEXEC);
	if (number < 0) {
		unmake_file(file);
		return number;
	}
	opened = anon_inode_create_getfile("[pagelab-lba]", &file_operations,
					   file, O_RDONLY, NULL);
	if (IS_ERR(opened)) {
		put_unused_fd(number);
		unmake_file(file);
		return PTR_ERR(opened);
	}
	inode = file_inode(opened);
	inode->i_mapping->a_ops = &lba_aops;
	i_size_write(inode, bdev_nr_bytes(file_bdev(file->device)) & PAGE_MASK);
	file->mapping = inode->i_mapping;

	mutex_lock(&files_mutex);
	list_add(&file->list, &files);
	mutex_unlock(&files_mutex);
	lba_wake_kpoold();
	lba_wake_kpted();
	fd_install(number, opened);
	return number;
}

static long lba_ioctl(struct file *opened, unsigned int command,
		      unsigned long argument)
{
	if (command != PAGELAB_LBA_OPEN)
		return -ENOTTY;
	if (argument > INT_MAX)
		return -EBADF;
	return open_mappable(argument);
}

static const struct file_operations device_operations = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= lba_ioctl,
	.llseek		= noop_llseek,
};

static struct miscdevice device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "pagelab-lba",
	.fops	= &device_operations,
	.mode	= 0600,
};

static unsigned int enabled_get(void)
{
	return static_key_enabled(&pagelab_lba_on);
}

/* A fault on its way ends as it began; kpted does what it leaves. */
static int enabled_set(unsigned int on)
{
	if (on)
		static_branch_enable(&pagelab_lba_on);
	else
		static_branch_disable(&pagelab_lba_on);
	lba_wake_kpoold();
	return 0;
}

static const struct pagelab_choice enabled_choice = {
	.names = pagelab_off_on, .get = enabled_get, .set = enabled_set,
};

static const char *const stat_names[LBA_NR_STATS] = {
	[LBA_MAPPED]		= "mapped",
	[LBA_JOINED]		= "joined",
	[LBA_FULL]		= "full",
	[LBA_EMPTY]		= "empty",
	[LBA_FAILED]		= "failed",
	[LBA_SETTLED]		= "settled",
	[LBA_KERNEL]		= "kernel",
	[LBA_OVER_LIMIT]	= "over_limit",
	[LBA_FINISHED]		= "finished",
	[LBA_NOT_FINISHED]	= "not_finished",
	[LBA_WITHDRAWN]		= "withdrawn",
	[LBA_FILLED]		= "filled",
	[LBA_FILLED_BY_FAULTS]	= "filled_by_faults",
	[LBA_SHRUNK]		= "shrunk",
	[LBA_KPTED_TICKS]	= "kpted_ticks",
	[LBA_KPOOLD_TICKS]	= "kpoold_ticks",
};

static int stats_show(struct seq_file *out, void *unused)
{
	unsigned long sum;
	int cpu, i;

	seq_printf(out, "pending %lu\nqueued %lu\n", lba_pending_pages(),
		   lba_queued());
	for (i = 0; i < LBA_NR_STATS; i++) {
		sum = 0;
		for_each_possible_cpu(cpu)
			sum += per_cpu(lba_stats[i], cpu);
		seq_printf(out, "%s %lu\n", stat_names[i], sum);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int __init lba_init(void)
{
	struct dentry *dir = pagelab_dir("lba");
	int error;

	error = lba_queue_init(dir) ?: lba_metadata_init(dir);
	if (error)
		return error;
	pagelab_choice_file("enabled", dir, &enabled_choice);
	debugfs_create_file("stats", 0444, dir, NULL, &stats_fops);
	return misc_register(&device);
}
late_initcall(lba_init);

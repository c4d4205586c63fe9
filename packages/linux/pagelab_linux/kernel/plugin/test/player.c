// SPDX-License-Identifier: GPL-2.0
/*
 * Plays a guest's instructions to fault_trace.c, so that it can be tested
 * without a kernel. Arguments: those of the plugin. Standard input, one
 * instruction a line: ADDRESS CODE [l|s ADDRESS SHIFT]..., all but l and s in
 * hexadecimal: a load or store of 1 << SHIFT bytes. Physical addresses are
 * the lower 30 bits of virtual ones; those with bit 29 are of a device.
 */
#include "../fault_trace.c"

struct qemu_plugin_insn {
	uint64_t address;
	uint8_t code[16];
	size_t size;
	executed_t executed;
	referred_t referred;
	void *executed_data, *referred_data;
	uint64_t *counter, added;
};

struct qemu_plugin_hwaddr {
	uint64_t physical;
};

struct qemu_plugin_tb {
	struct qemu_plugin_insn *insn;
};

static void (*on_translation)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
static void (*on_exit_of_qemu)(qemu_plugin_id_t id, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block)
{
	return block->insn ? 1 : 0;
}

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index)
{
	return block->insn + index;
}

uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn)
{
	return insn->address;
}

const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn)
{
	return insn->code;
}

size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn)
{
	return insn->size;
}

void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_t callback, int flags, void *data)
{
	(void)flags;
	insn->executed = callback;
	insn->executed_data = data;
}

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, referred_t callback, int flags, int which,
				      void *data)
{
	(void)flags;
	(void)which;
	insn->referred = callback;
	insn->referred_data = data;
}

void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int operation, void *number,
						uint64_t added)
{
	(void)operation;
	insn->counter = number;
	insn->added = added;
}

struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address)
{
	static struct qemu_plugin_hwaddr where;

	(void)info;
	where.physical = address & 0x3fffffff;
	return &where;
}

bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *where)
{
	return where->physical >> 29;
}

uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *where)
{
	return where->physical;
}

unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info)
{
	return info & 15;
}

bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info)
{
	return info >> 4;
}

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *block))
{
	(void)id;
	on_translation = callback;
}

void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*callback)(qemu_plugin_id_t id, void *data), void *data)
{
	(void)id;
	(void)data;
	on_exit_of_qemu = callback;
}

static void play(char *line)
{
	struct qemu_plugin_insn insn = { 0 };
	struct qemu_plugin_tb block = { &insn };
	char *word = strtok(line, " \n"), *code = strtok(NULL, " \n");

	if (!word || !code)
		die("script", "a line is ADDRESS CODE [l|s ADDRESS SHIFT]...");
	insn.address = strtoull(word, NULL, 16);
	for (; code[0] && code[1]; code += 2)
		sscanf(code, "%2hhx", &insn.code[insn.size++]);
	on_translation(0, &block);
	if (insn.counter)
		*insn.counter += insn.added;
	if (insn.executed)
		insn.executed(0, insn.executed_data);
	while ((word = strtok(NULL, " \n"))) {
		char *address = strtok(NULL, " \n"), *shift = strtok(NULL, " \n");

		if (!address || !shift)
			die("script", "a reference is l or s, ADDRESS and SHIFT");
		if (insn.referred)
			insn.referred(0, (*word == 's') << 4 | strtoul(shift, NULL, 16), strtoull(address, NULL, 16),
				      insn.referred_data);
	}
}

int main(int count, char **arguments)
{
	qemu_info_t info = { .system_emulation = true, .system.smp_vcpus = 1 };
	char line[512];

	qemu_plugin_install(0, &info, count - 1, arguments + 1);
	while (fgets(line, sizeof(line), stdin))
		play(line);
	on_exit_of_qemu(0, NULL);
	return 0;
}

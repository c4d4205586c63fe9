"""Consoles of guests, as QEMU wrote them, and reports as Linux 6.12 prints them."""

BOOT = "PAGELAB kernel 6.12.117-pagelab\r\n"
END = "PAGELAB tainted 0\r\nPAGELAB done\r\n"
TOUCH = (
    "PAGELAB begin 1 touch,random,64\r\npages=16384\r\nfaults=16384\r\nticks=38000000\r\nloop_ticks=90000\r\n"
    "PAGELAB end 1 status=0\r\n"
)

WARNING = """\
[    1.204215] ------------[ cut here ]------------
[    1.204512] WARNING: CPU: 0 PID: 21 at mm/memory.c:5919 __handle_mm_fault+0x3c/0x2d0
[    1.205001] CPU: 0 UID: 0 PID: 21 Comm: touch Not tainted 6.12.117-pagelab #1
[    1.205311] RIP: 0010:__handle_mm_fault+0x3c/0x2d0
[    1.205604] Call Trace:
[    1.205702]  <TASK>
[    1.205811]  handle_mm_fault+0x81/0x1a0
[    1.206023]  </TASK>
[    1.206101] ---[ end trace 0000000000000000 ]---
"""

KASAN = """\
[    3.120011] ==================================================================
[    3.120405] BUG: KASAN: slab-use-after-free in free_reservation+0x44/0x90
[    3.120800] Read of size 8 at addr ffff888003c3a028 by task touch/31
[    3.121500] CPU: 1 UID: 0 PID: 31 Comm: touch Not tainted 6.12.117-pagelab #1
[    3.122000] Freed by task 31:
[    3.122100]  kasan_save_stack+0x33/0x60
[    3.122300] ==================================================================
"""

LOCKDEP = """\
[    2.500100] ======================================================
[    2.500200] WARNING: possible circular locking dependency detected
[    2.500300] 6.12.117-pagelab #1 Not tainted
[    2.500400] ------------------------------------------------------
[    2.500500] touch/30 is trying to acquire lock:
[    2.500600] ffff888003d0a0b8 (&r->lock){+.+.}-{2:2}, at: reserve+0x20/0x100
[    2.500700] but task is already holding lock:
[    2.500800] ffff888003d0a198 (ptlock_ptr(ptdesc)#2){+.+.}-{2:2}, at: __pte_offset_map_lock+0x6d/0x130
"""

RECURSIVE = "[    2.500200] WARNING: possible recursive locking detected\n"
RCU = "[    1.700000] WARNING: suspicious RCU usage\n"
SLUB = "[    1.800000] BUG kmalloc-64 (Not tainted): Redzone overwritten\n"
BAD_PAGE = "[    4.000000] BUG: Bad page state in process touch  pfn:02c41\n"
COUNTER = "[    4.100000] BUG: Bad rss-counter state mm:00000000a6a5dcd5 type:MM_ANONPAGES val:3\n"
POISON = "[    4.200000] pagealloc: single bit error\n"
HUNG = "[  245.000000] INFO: task touch:31 blocked for more than 122 seconds.\n"
STALL = "[   26.000000] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:\n"
LOCKUP = "[   28.000000] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [touch:31]\n"
LIST = "[    5.000000] list_del corruption. prev->next should be ffff888003c3a028, but was dead000000000100\n"
OOM = "[    5.100000] touch invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\n"
PANIC = """\
[    0.900000] Kernel panic - not syncing: No working init found.
[    0.900100] CPU: 0 UID: 0 PID: 1 Comm: swapper/0 Not tainted 6.12.117-pagelab #1
[    0.900200] ---[ end Kernel panic - not syncing: No working init found. ]---
"""
OOPS = """\
[    1.100000] BUG: kernel NULL pointer dereference, address: 0000000000000010
[    1.100100] #PF: supervisor read access in kernel mode
[    1.100200] Oops: Oops: 0000 [#1] SMP NOPTI
[    1.100300] Kernel panic - not syncing: Fatal exception
"""
HARMLESS = """\
[    0.000000] debug: nothing
[    0.100000] kasan: KernelAddressSanitizer initialized
[    0.200000] Warning: unable to open an initial console.
[    0.300000] RCU: Adjusting geometry for rcu_fanout_leaf=16, nr_cpu_ids=1
"""

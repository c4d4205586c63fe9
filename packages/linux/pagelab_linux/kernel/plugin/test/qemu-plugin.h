/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What player.c offers to fault_trace.c in QEMU's place: the same calls, for
 * instructions that a script gives. Not QEMU's header.
 */
#ifndef PLAYER_QEMU_PLUGIN_H
#define PLAYER_QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QEMU_PLUGIN_EXPORT
#define QEMU_PLUGIN_VERSION 1

enum { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, QEMU_PLUGIN_INLINE_ADD_U64 };

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
typedef struct {
	bool system_emulation;
	struct {
		int smp_vcpus;
	} system;
} qemu_info_t;
struct qemu_plugin_insn;
struct qemu_plugin_tb;
struct qemu_plugin_hwaddr;
typedef void (*executed_t)(unsigned int cpu, void *data);
typedef void (*referred_t)(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_t callback, int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, referred_t callback, int flags, int which,
				      void *data);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int operation, void *number,
						uint64_t added);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *where);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *where);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *block));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*callback)(qemu_plugin_id_t id, void *data), void *data);

#endif

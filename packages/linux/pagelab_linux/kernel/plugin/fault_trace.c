// SPDX-License-Identifier: GPL-2.0
/*
 * fault_trace: a plugin of QEMU's translator. Counts what the kernel executes
 * for each page fault of user code: instructions and references to memory, by
 * function and by stage.
 *
 * Arguments: symbols=FILE (in: functions, written from System.map),
 * records=FILE (out), and if wanted references=FILE (out) with most=FAULTS.
 * For a guest of one CPU. Faults count only between two marks of the guest's
 * program: "nopl MARK+1(%rax,%rax)" begins, MARK+0 ends. MARK+2 between them
 * begins a pass that the guest takes off its count: what the kernel executes
 * from there is taken off, too.
 *
 * A fault begins with the first instruction of the exception's entry after
 * one of user code, and ends with the iretq that leaves the kernel. A shadow
 * stack of calls says whom a helper works for. Interrupts on the way are
 * counted apart.
 *
 * symbols:  pagelab-fault-symbols 1 STAGES
 *           START END STAGE WHOLE AFTER ROLE MET NAME   (one line a function)
 *   STAGE  number, or -1: that of the caller
 *   WHOLE  1: all that it calls is of its stage, too
 *   AFTER  stage of the caller once this function has returned, or -1
 *   ROLE   0 none, 1 entry of page faults, 2 of interrupts, 3 switches tasks
 *   MET    number of a bit that says that a fault met the function, or -1
 * records:  pagelab-fault-records 1 STAGES
 *           F RUN MET INTERRUPTS INSTRUCTIONS-OF-THEM [STAGE INSTRUCTIONS
 *             REPETITIONS LOADS STORES LINES NEW-LINES]...
 *           G RUN MET STAGE FAULTS INSTRUCTIONS REPETITIONS LOADS STORES NAME
 *           R RUN LEFT-OUT INSTRUCTIONS-OF-THEM INSTRUCTIONS-BESIDE
 *           D of-the-kernel NUMBER nested NUMBER switched NUMBER open NUMBER
 *             overflown NUMBER
 *           E
 * LINES are distinct lines of 64 bytes of a stage, NEW-LINES those of them
 * that no stage of the fault had touched before. REPETITIONS are the part of
 * the instructions that a string instruction takes beyond its first. Faults
 * are left out for the reasons that D counts. Beside faults, the kernel serves
 * interrupts of user code and runs other tasks. Instructions of F, of their
 * interrupts and of R are all that the kernel executed during the run.
 *
 * references: "pagelab-references 1 STAGES", filled up to 32 bytes with zeros,
 * then a struct logged for each reference to memory, of user code and of the
 * kernel, from the beginning of each run until FAULTS faults have ended.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qemu-plugin.h>

#define MARK 0x70670000u
#define MOST_STAGES 16
#define MOST_DEPTH 256
#define LINE_SHIFT 6
#define LINE_SLOTS (1u << 18)
#define GROUP_SLOTS (1u << 16)
#define MOST_RUNS 256

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

enum role { NO_ROLE, FAULT_ENTRY, INTERRUPT_ENTRY, SWITCH };
enum kind { CALL = 1, RETURN = 2, IRET = 4, STRING = 8, FIRST = 16, PERCPU = 32, KINDS = 64 };
enum drop { KERNEL, NESTED, SWITCHED, OPEN, OVERFLOWN, DROPS };

static const char *const drop_names[DROPS] = { "of-the-kernel", "nested", "switched", "open", "overflown" };

struct function {
	uint64_t start, end;
	int stage, whole, after, role, met;
	char *name;
};

/* What an instruction is, for the callbacks: one per function and kind. */
struct instruction {
	uint32_t function, kind;
};

struct frame {
	uint32_t called, function;
	int stage, whole;
};

struct counts {
	uint64_t instructions, repetitions, loads, stores, lines, new_lines;
};

struct line {
	uint64_t address;
	uint32_t fault, stages;
};

/* Counts of a function in a stage, of this fault or of all with the same run and met functions. */
struct group {
	uint32_t used, run, function, stage;
	uint64_t met, faults;
	struct counts counts;
};

/* What is logged; little-endian, as x86 has it. */
struct logged {
	uint64_t address, physical;
	/* Of the run or later ones; 0 if it is of no fault. */
	uint32_t fault;
	/* Instructions since the last one, its own included. */
	uint32_t gap;
	uint32_t run;
	uint8_t what;
	/* Of the fault, or one of those below. */
	uint8_t stage;
	/* Its size is 1 << shift. */
	uint8_t shift;
	/* Whether it goes through the CPU's own segment (gs). */
	uint8_t percpu;
};

enum what { LOAD, STORE, KEPT, LEFT_OUT };
enum { OF_USER = 254, OF_NO_FAULT = 255 };

static struct function *functions;
static struct instruction *instructions;
static uint32_t function_count;
static int stage_count;
static FILE *records, *references;
/* Faults of the run that are logged yet, and instructions since the last reference that was. */
static uint64_t most_logged, left_to_log, gap;

static struct {
	int active, ending, calls, returns, failed;
	uint32_t depth, interrupt_depth, number;
	uint64_t met, interrupts, interrupt_instructions;
	struct frame stack[MOST_DEPTH];
	struct counts stages[MOST_STAGES];
	const struct instruction *last;
} fault;

static struct line lines[LINE_SLOTS];
static uint32_t line_count;
static struct group groups[GROUP_SLOTS];
static uint32_t group_count;
/* Of the current fault: counts by function and stage, and which of them are in use. */
static struct counts *cells;
static uint32_t *used_cells, used_count;
static uint64_t drops[DROPS];
/* By run: faults left out, their instructions up to where that was seen, and all instructions beside faults. */
static uint64_t left_out[MOST_RUNS], left_out_instructions[MOST_RUNS];
static int64_t beside[MOST_RUNS];
static uint32_t run;
static int in_run, taking_off, from_user;

static void die(const char *what, const char *detail)
{
	fprintf(stderr, "fault_trace: %s: %s\n", what, detail);
	exit(1);
}

static void log_reference(const struct logged *logged)
{
	if (fwrite(logged, sizeof(*logged), 1, references) != 1)
		die("references", "cannot be written");
}

/* Logs a reference, if it is to memory. */
static void note(qemu_plugin_meminfo_t info, uint64_t address, int stage, int percpu)
{
	struct qemu_plugin_hwaddr *where;
	struct logged logged = {
		.address = address,
		.gap = gap,
		.run = run,
		.what = qemu_plugin_mem_is_store(info) ? STORE : LOAD,
		.stage = stage,
		.shift = qemu_plugin_mem_size_shift(info),
		.percpu = percpu,
	};

	where = qemu_plugin_get_hwaddr(info, address);
	if (!where || qemu_plugin_hwaddr_is_io(where))
		return;
	logged.physical = qemu_plugin_hwaddr_phys_addr(where);
	logged.fault = stage < OF_USER ? fault.number : 0;
	gap = 0;
	log_reference(&logged);
}

/* Says of the fault's references whether it is one of those recorded. */
static void note_end(int kept)
{
	struct logged logged = { .fault = fault.number, .run = run, .what = kept ? KEPT : LEFT_OUT };

	if (!left_to_log)
		return;
	log_reference(&logged);
	left_to_log--;
}

static void add(struct counts *sum, const struct counts *more)
{
	sum->instructions += more->instructions;
	sum->repetitions += more->repetitions;
	sum->loads += more->loads;
	sum->stores += more->stores;
}

static struct counts *cell(uint32_t function, int stage)
{
	uint32_t at = function * stage_count + stage;

	if (!cells[at].instructions && !cells[at].loads && !cells[at].stores)
		used_cells[used_count++] = at;
	return &cells[at];
}

static void add_to_group(uint32_t function, uint32_t stage, const struct counts *counts)
{
	uint64_t hash = (function * 31ull + stage) * 0x9e3779b97f4a7c15ull ^ fault.met * 0xc2b2ae3d27d4eb4full ^ run * 7919u;
	uint32_t at = (hash ^ hash >> 29) % GROUP_SLOTS;
	struct group *group;

	for (;; at = (at + 1) % GROUP_SLOTS) {
		group = &groups[at];
		if (!group->used)
			break;
		if (group->function == function && group->stage == stage && group->met == fault.met && group->run == run)
			break;
	}
	if (!group->used) {
		if (++group_count > GROUP_SLOTS / 4 * 3)
			die("too many kinds of faults", "trace fewer programs at once");
		*group = (struct group){ .used = 1, .run = run, .function = function, .stage = stage, .met = fault.met };
	}
	group->faults++;
	add(&group->counts, counts);
}

static void write_fault(void)
{
	fprintf(records, "F %u %" PRIx64 " %" PRIu64 " %" PRIu64, run, fault.met, fault.interrupts,
		fault.interrupt_instructions);
	for (int stage = 0; stage < stage_count; stage++) {
		const struct counts *c = &fault.stages[stage];

		if (c->instructions || c->loads || c->stores)
			fprintf(records, " %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, stage,
				c->instructions, c->repetitions, c->loads, c->stores, c->lines, c->new_lines);
	}
	fputc('\n', records);
}

static void leave_out(int why)
{
	drops[why]++;
	left_out[run]++;
	left_out_instructions[run] += fault.interrupt_instructions;
	for (int stage = 0; stage < stage_count; stage++)
		left_out_instructions[run] += fault.stages[stage].instructions;
}

/* Ends the fault, and keeps it unless something went wrong with it. */
static void end_fault(int dropped)
{
	if (dropped < 0 && fault.failed)
		dropped = OVERFLOWN;
	if (dropped < 0)
		write_fault();
	else
		leave_out(dropped);
	note_end(dropped < 0);
	for (uint32_t i = 0; i < used_count; i++) {
		struct counts *counts = &cells[used_cells[i]];

		if (dropped < 0)
			add_to_group(used_cells[i] / stage_count, used_cells[i] % stage_count, counts);
		memset(counts, 0, sizeof(*counts));
	}
	used_count = 0;
	fault.active = 0;
}

static void begin_fault(uint32_t function)
{
	uint32_t number = fault.number + 1;

	memset(&fault, 0, sizeof(fault));
	fault.number = number;
	fault.active = 1;
	fault.stack[0] = (struct frame){ function, function, functions[function].stage, functions[function].whole };
	line_count = 0;
}

/* Whom a function of no stage of its own works for: the one whose frame this is, or that called it. */
static void enter(struct frame *frame, uint32_t function)
{
	frame->function = function;
	if (frame->whole || functions[function].stage < 0)
		return;
	frame->stage = functions[function].stage;
	frame->whole = functions[function].whole;
}

static void follow(uint32_t function)
{
	struct frame *top = &fault.stack[fault.depth];

	if (fault.calls) {
		if (fault.depth + 1 == MOST_DEPTH) {
			fault.failed = 1;
			return;
		}
		top[1] = top[0];
		top[1].called = function;
		fault.depth++;
		enter(top + 1, function);
	} else if (fault.returns && fault.depth) {
		int after = functions[top->called].after;

		fault.depth--;
		if (after >= 0 && !top[-1].whole)
			top[-1].stage = after;
	} else if (top->function != function) {
		/* A jump into another function: a call without return, or another part of this one. */
		enter(top, function);
	}
	fault.stack[fault.depth].function = function;
	fault.calls = fault.returns = 0;
}

static void count(const struct instruction *instruction)
{
	const struct function *function = &functions[instruction->function];
	struct counts *of_function, *of_stage;
	int repeated = (instruction->kind & STRING) && fault.last == instruction;
	int stage;

	follow(instruction->function);
	stage = fault.stack[fault.depth].stage;
	of_function = cell(instruction->function, stage);
	of_stage = &fault.stages[stage];
	of_function->instructions++;
	of_stage->instructions++;
	of_function->repetitions += repeated;
	of_stage->repetitions += repeated;
	if (function->met >= 0)
		fault.met |= 1ull << function->met;
	fault.last = instruction;
	fault.calls = !!(instruction->kind & CALL);
	fault.returns = !!(instruction->kind & RETURN);
	if (instruction->kind & IRET)
		fault.ending = 1;
}

/* Returns whether the instruction is of an interrupt. */
static int interrupted(const struct instruction *instruction)
{
	int first = instruction->kind & FIRST;

	if (first && functions[instruction->function].role == INTERRUPT_ENTRY) {
		fault.interrupts += !fault.interrupt_depth;
		fault.interrupt_depth++;
	}
	if (!fault.interrupt_depth)
		return 0;
	fault.interrupt_instructions++;
	if (instruction->kind & IRET)
		fault.interrupt_depth--;
	return 1;
}

static void kernel_instruction(unsigned int cpu, void *data)
{
	const struct instruction *instruction = data;
	int role, was_user = from_user;

	(void)cpu;
	if (!in_run)
		return;
	if (taking_off) {
		beside[run]--;
		return;
	}
	from_user = 0;
	gap++;
	role = instruction->kind & FIRST ? functions[instruction->function].role : NO_ROLE;
	if (fault.active && fault.ending) {
		/* Back in the kernel before an instruction of the user: another fault or an interrupt. */
		end_fault(-1);
		was_user = 1;
	}
	if (fault.active && role == FAULT_ENTRY)
		end_fault(NESTED);
	else if (fault.active && role == SWITCH)
		end_fault(SWITCHED);
	else if (!fault.active && role == FAULT_ENTRY && was_user)
		begin_fault(instruction->function);
	else if (!fault.active && role == FAULT_ENTRY)
		drops[KERNEL]++;
	if (!fault.active)
		beside[run]++;
	else if (!interrupted(instruction))
		count(instruction);
}

static void touch(uint64_t address, int stage)
{
	uint64_t line = address >> LINE_SHIFT;
	uint32_t at = (line * 0x9e3779b97f4a7c15ull >> 40) % LINE_SLOTS;

	while (lines[at].fault == fault.number && lines[at].address != line)
		at = (at + 1) % LINE_SLOTS;
	if (lines[at].fault != fault.number) {
		if (++line_count > LINE_SLOTS / 4 * 3) {
			fault.failed = 1;
			return;
		}
		lines[at] = (struct line){ line, fault.number, 0 };
		fault.stages[stage].new_lines++;
	}
	if (!(lines[at].stages >> stage & 1)) {
		lines[at].stages |= 1u << stage;
		fault.stages[stage].lines++;
	}
}

static void reference(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	const struct instruction *instruction = data;
	struct counts *of_function;
	uint64_t last = address + (1ull << qemu_plugin_mem_size_shift(info)) - 1;
	int stage, stores = qemu_plugin_mem_is_store(info);
	int counts = fault.active && !fault.interrupt_depth && !fault.failed && fault.last == instruction;

	(void)cpu;
	stage = counts ? fault.stack[fault.depth].stage : OF_NO_FAULT;
	if (in_run && left_to_log)
		note(info, address, stage, !!(instruction->kind & PERCPU));
	if (!counts)
		return;
	of_function = cell(instruction->function, stage);
	of_function->loads += !stores;
	of_function->stores += stores;
	fault.stages[stage].loads += !stores;
	fault.stages[stage].stores += stores;
	touch(address, stage);
	if (address >> LINE_SHIFT != last >> LINE_SHIFT)
		touch(last, stage);
}

static void user_reference(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	(void)cpu;
	(void)data;
	if (in_run && left_to_log)
		note(info, address, OF_USER, 0);
}

static void user_block(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	from_user = 1;
	if (fault.active)
		end_fault(fault.ending ? -1 : OPEN);
}

static void begin_run(unsigned int cpu, void *data)
{
	user_block(cpu, data);
	if (++run == MOST_RUNS)
		die("too many runs", "trace fewer programs at once");
	in_run = 1;
	taking_off = 0;
	left_to_log = most_logged;
	gap = 0;
}

static void take_off(unsigned int cpu, void *data)
{
	user_block(cpu, data);
	taking_off = 1;
	left_to_log = 0;
}

static void end_run(unsigned int cpu, void *data)
{
	user_block(cpu, data);
	in_run = 0;
}

static int function_at(uint64_t address)
{
	uint32_t low = 0, high = function_count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (functions[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < function_count && functions[low].start <= address ? (int)low : -1;
}

static uint32_t kind_of(const uint8_t *code, size_t size)
{
	size_t at = 0;
	int repeats = 0, percpu = 0;

	while (at + 1 < size && (code[at] == 0x65 || code[at] == 0x66 || code[at] == 0xf2 || code[at] == 0xf3 ||
				 code[at] == 0x2e || code[at] == 0x3e || (code[at] & 0xf0) == 0x40)) {
		repeats |= code[at] == 0xf2 || code[at] == 0xf3;
		percpu |= code[at] == 0x65 ? PERCPU : 0;
		at++;
	}
	switch (code[at]) {
	case 0xe8:
		return CALL;
	case 0xff:
		return percpu | (at + 1 < size && (code[at + 1] >> 3 & 7) == 2 ? CALL : 0);
	case 0xc2:
	case 0xc3:
		return RETURN;
	case 0xcf:
		return IRET;
	case 0xa4 ... 0xa7:
	case 0xaa ... 0xaf:
		return percpu | (repeats ? STRING : 0);
	}
	return percpu;
}

static void (*const at_mark[])(unsigned int cpu, void *data) = { end_run, begin_run, take_off };

static void watch_user(struct qemu_plugin_insn *insn, int first)
{
	const uint8_t *code = qemu_plugin_insn_data(insn);
	uint32_t mark;

	if (qemu_plugin_insn_size(insn) == 8 && !memcmp(code, "\x0f\x1f\x84\x00", 4)) {
		memcpy(&mark, code + 4, sizeof(mark));
		if (mark - MARK < sizeof(at_mark) / sizeof(*at_mark)) {
			qemu_plugin_register_vcpu_insn_exec_cb(insn, at_mark[mark - MARK], QEMU_PLUGIN_CB_NO_REGS,
							       NULL);
			return;
		}
	}
	if (first)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, user_block, QEMU_PLUGIN_CB_NO_REGS, NULL);
	if (!references)
		return;
	qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, &gap, 1);
	qemu_plugin_register_vcpu_mem_cb(insn, user_reference, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		uint32_t kind;
		int function;

		if (!(address >> 63)) {
			watch_user(insn, i == 0);
			continue;
		}
		function = function_at(address);
		/* The last one holds what is in no function. */
		if (function < 0)
			function = function_count;
		kind = kind_of(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
		kind |= functions[function].start == address ? FIRST : 0;
		qemu_plugin_register_vcpu_insn_exec_cb(insn, kernel_instruction, QEMU_PLUGIN_CB_NO_REGS,
						       &instructions[function * KINDS + kind]);
		qemu_plugin_register_vcpu_mem_cb(insn, reference, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 &instructions[function * KINDS + kind]);
	}
}

static void finish(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	if (fault.active)
		end_fault(OPEN);
	for (uint32_t at = 0; at < GROUP_SLOTS; at++) {
		const struct group *g = &groups[at];

		if (g->used)
			fprintf(records,
				"G %u %" PRIx64 " %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
				g->run, g->met, g->stage, g->faults, g->counts.instructions, g->counts.repetitions,
				g->counts.loads, g->counts.stores, functions[g->function].name);
	}
	for (uint32_t at = 1; at <= run; at++)
		fprintf(records, "R %u %" PRIu64 " %" PRIu64 " %" PRId64 "\n", at, left_out[at],
			left_out_instructions[at], beside[at]);
	fputc('D', records);
	for (int i = 0; i < DROPS; i++)
		fprintf(records, " %s %" PRIu64, drop_names[i], drops[i]);
	fprintf(records, "\nE\n");
	if (fclose(records))
		die("records", "cannot be written in full");
	if (references && fclose(references))
		die("references", "cannot be written in full");
}

static void read_symbols(const char *path)
{
	FILE *file = fopen(path, "r");
	char name[256], line[512];
	uint32_t room = 0;

	if (!file)
		die(path, "cannot be read");
	if (!fgets(line, sizeof(line), file) || sscanf(line, "pagelab-fault-symbols 1 %d", &stage_count) != 1 ||
	    stage_count < 1 || stage_count > MOST_STAGES)
		die(path, "must begin with: pagelab-fault-symbols 1 STAGES");
	while (fgets(line, sizeof(line), file)) {
		struct function f;

		if (function_count + 1 >= room) {
			room = room ? 2 * room : 4096;
			functions = realloc(functions, room * sizeof(*functions));
			if (!functions)
				die(path, "no memory for its functions");
		}
		if (sscanf(line, "%" SCNx64 " %" SCNx64 " %d %d %d %d %d %255s", &f.start, &f.end, &f.stage, &f.whole,
			   &f.after, &f.role, &f.met, name) != 8 ||
		    f.stage >= stage_count || f.after >= stage_count || f.met > 63 || f.start >= f.end)
			die(path, line);
		f.name = strdup(name);
		functions[function_count++] = f;
	}
	fclose(file);
	if (!function_count)
		die(path, "has no functions");
	functions[function_count] = (struct function){ 0, 0, stage_count - 1, 0, -1, 0, -1, "(no function)" };
}

static void open_references(const char *path)
{
	char head[sizeof(struct logged)] = { 0 };

	snprintf(head, sizeof(head), "pagelab-references 1 %d\n", stage_count);
	references = fopen(path, "wb");
	if (!references || fwrite(head, sizeof(head), 1, references) != 1)
		die(path, "cannot be written");
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments)
{
	const char *symbols = NULL, *output = NULL, *log = NULL;
	size_t all;

	for (int i = 0; i < count; i++) {
		if (!strncmp(arguments[i], "symbols=", 8))
			symbols = arguments[i] + 8;
		else if (!strncmp(arguments[i], "records=", 8))
			output = arguments[i] + 8;
		else if (!strncmp(arguments[i], "references=", 11))
			log = arguments[i] + 11;
		else if (!strncmp(arguments[i], "most=", 5))
			most_logged = strtoull(arguments[i] + 5, NULL, 10);
		else
			die(arguments[i], "no such argument; there are symbols, records and references=FILE, most=FAULTS");
	}
	if (!symbols || !output || !log != !most_logged)
		die("arguments", "symbols=FILE and records=FILE must be given, and references=FILE with most=FAULTS");
	if (!info->system_emulation || info->system.smp_vcpus != 1)
		die("guest", "must be a whole system of one CPU");
	read_symbols(symbols);
	all = function_count + 1;
	instructions = calloc(all * KINDS, sizeof(*instructions));
	cells = calloc(all * stage_count, sizeof(*cells));
	used_cells = calloc(all * stage_count, sizeof(*used_cells));
	records = fopen(output, "w");
	if (!instructions || !cells || !used_cells || !records)
		die(output, "cannot be written, or memory is short");
	for (uint32_t i = 0; i < all * KINDS; i++)
		instructions[i] = (struct instruction){ i / KINDS, i % KINDS };
	fprintf(records, "pagelab-fault-records 1 %d\n", stage_count);
	if (log)
		open_references(log);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, finish, NULL);
	return 0;
}

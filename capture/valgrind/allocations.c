/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include <elf.h>
#include <stddef.h>

#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_xarray.h"
#include "libvex_guest_amd64.h"

#include "allocations.h"
#include "stream.h"

/* A call of an allocator is noted at the function's first instruction, with its arguments, and reported when the same
   thread returns with the stack pointer that it had then: only there is the block known. Calls inside are the
   allocator's own business: `operator new` calls malloc, and one block comes of it. */

typedef enum {
   BYTES,          /* (bytes) */
   NUMBER_BYTES,   /* (number, bytes of each) */
   ALIGNED,        /* (alignment, bytes) */
   RESIZED,        /* (old block, bytes) */
   RESIZED_NUMBER, /* (old block, number, bytes of each) */
   BY_POINTER,     /* (where to leave the block, alignment, bytes), returns 0 */
   FREES           /* (block) */
} Signature;

/* C11 7.22.3 and malloc(3); names of C++ by the Itanium ABI, 5.1.3 ("nw" new, "na" new[], "dl" delete, "da"
   delete[]). */
static const struct {
   const HChar* name;
   Signature signature;
} functions[] = {
   {"malloc", BYTES}, {"valloc", BYTES}, {"pvalloc", BYTES}, {"calloc", NUMBER_BYTES}, {"realloc", RESIZED},
   {"reallocarray", RESIZED_NUMBER}, {"aligned_alloc", ALIGNED}, {"memalign", ALIGNED}, {"posix_memalign", BY_POINTER},
   {"free", FREES}, {"cfree", FREES}, {"_Znwm", BYTES}, {"_Znam", BYTES}, {"_ZnwmRKSt9nothrow_t", BYTES},
   {"_ZnamRKSt9nothrow_t", BYTES}, {"_ZnwmSt11align_val_t", BYTES}, {"_ZnamSt11align_val_t", BYTES},
   {"_ZnwmSt11align_val_tRKSt9nothrow_t", BYTES}, {"_ZnamSt11align_val_tRKSt9nothrow_t", BYTES}, {"_ZdlPv", FREES},
   {"_ZdaPv", FREES}, {"_ZdlPvm", FREES}, {"_ZdaPvm", FREES}, {"_ZdlPvSt11align_val_t", FREES},
   {"_ZdaPvSt11align_val_t", FREES}, {"_ZdlPvmSt11align_val_t", FREES}, {"_ZdaPvmSt11align_val_t", FREES},
};

#define FUNCTIONS (sizeof functions / sizeof functions[0])
/* Larger tables are none that a linker made. */
#define TABLE_BYTES_MAX (256u << 20)
#define SEGMENTS_MAX 64

typedef struct {
   Addr address;
   Signature signature;
} Entry;

typedef struct {
   Addr start, end;
} Range;

/* A call of an allocator that has not returned. */
typedef struct {
   Addr sp; /* at the function's first instruction; 0 without one */
   Signature signature;
   UWord arguments[3];
} Call;

Bool pl_stacks = False;

static XArray* entries = NULL; /* of Entry */
static XArray* ranges = NULL;  /* of Range: code that allocators return from */
static Call* calls = NULL;     /* by thread */
static ThreadId running = VG_INVALID_THREADID;
/* The stack pointer with which the running thread returns from its call; 0 without one. */
static ULong returning_sp = 0;

void pl_allocations_run_as(ThreadId tid)
{
   if (!pl_stacks)
      return;
   if (calls == NULL)
      calls = VG_(calloc)("pagelab.calls", VG_N_THREADS, sizeof(Call));
   running = tid;
   returning_sp = calls[tid].sp == 0 ? 0 : calls[tid].sp + 8;
}

static void set_call(Addr sp)
{
   calls[running].sp = sp;
   returning_sp = sp == 0 ? 0 : sp + 8;
}

/* ---- symbols ---- */

static Bool read_at(Int fd, ULong offset, void* into, SizeT bytes)
{
   OffT place = (OffT)offset;

   return VG_(lseek)(fd, place, VKI_SEEK_SET) == place && VG_(read)(fd, into, (Int)bytes) == (Int)bytes;
}

/* Bytes of a file in memory of their own; NULL if they are not there. */
static void* read_table(Int fd, ULong offset, ULong bytes)
{
   void* table;

   if (bytes == 0 || bytes > TABLE_BYTES_MAX)
      return NULL;
   table = VG_(malloc)("pagelab.table", bytes);
   if (read_at(fd, offset, table, bytes))
      return table;
   VG_(free)(table);
   return NULL;
}

typedef struct {
   Addr address;
   SizeT length;
   ULong offset;
   Elf64_Phdr segments[SEGMENTS_MAX];
   UInt segments_n;
   Bool has_functions;
} Mapped;

/* The symbol's value as an address of the mapping; 0 if it lies elsewhere. */
static Addr address_in(const Mapped* mapped, ULong value)
{
   UInt i;

   for (i = 0; i < mapped->segments_n; i++) {
      const Elf64_Phdr* segment = &mapped->segments[i];
      if (segment->p_type == PT_LOAD && value - segment->p_vaddr < segment->p_filesz) {
         ULong within = segment->p_offset + (value - segment->p_vaddr) - mapped->offset;
         return within < mapped->length ? mapped->address + within : 0;
      }
   }
   return 0;
}

static void look_through(Mapped* mapped, const Elf64_Sym* symbols, ULong n, const HChar* names, ULong names_bytes)
{
   ULong i;
   UInt f;

   for (i = 0; i < n; i++) {
      Entry entry;
      const Elf64_Sym* symbol = &symbols[i];
      if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF || symbol->st_name >= names_bytes)
         continue;
      for (f = 0; f < FUNCTIONS; f++) {
         if (VG_(strcmp)(names + symbol->st_name, functions[f].name) != 0)
            continue;
         entry.address = address_in(mapped, symbol->st_value);
         entry.signature = functions[f].signature;
         if (entry.address != 0) {
            VG_(addToXA)(entries, &entry);
            mapped->has_functions = True;
         }
      }
   }
}

/* The symbols of a table and, at another place, their names. */
static void look_in_section(Int fd, Mapped* mapped, const Elf64_Shdr* sections, UInt sections_n, UInt number)
{
   const Elf64_Shdr* section = &sections[number];
   const Elf64_Shdr* names_section;
   Elf64_Sym* symbols;
   HChar* names;

   if (section->sh_type != SHT_DYNSYM && section->sh_type != SHT_SYMTAB)
      return;
   if (section->sh_link >= sections_n)
      return;
   names_section = &sections[section->sh_link];
   symbols = read_table(fd, section->sh_offset, section->sh_size);
   names = read_table(fd, names_section->sh_offset, names_section->sh_size);
   if (symbols != NULL && names != NULL && names[names_section->sh_size - 1] == 0)
      look_through(mapped, symbols, section->sh_size / sizeof(Elf64_Sym), names, names_section->sh_size);
   if (symbols != NULL)
      VG_(free)(symbols);
   if (names != NULL)
      VG_(free)(names);
}

static void look_in_file(Int fd, Mapped* mapped)
{
   Elf64_Ehdr header;
   Elf64_Shdr* sections;
   UInt i;

   if (!read_at(fd, 0, &header, sizeof header) || VG_(memcmp)(header.e_ident, ELFMAG, SELFMAG) != 0
       || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)
       || header.e_shentsize != sizeof(Elf64_Shdr))
      return;
   mapped->segments_n = header.e_phnum < SEGMENTS_MAX ? header.e_phnum : SEGMENTS_MAX;
   if (!read_at(fd, header.e_phoff, mapped->segments, mapped->segments_n * sizeof(Elf64_Phdr)))
      return;
   sections = read_table(fd, header.e_shoff, (ULong)header.e_shnum * sizeof(Elf64_Shdr));
   if (sections == NULL)
      return;
   for (i = 0; i < header.e_shnum; i++)
      look_in_section(fd, mapped, sections, header.e_shnum, i);
   VG_(free)(sections);
}

void pl_allocations_mapped(Addr address, SizeT length, ULong offset, const HChar* file)
{
   static Mapped mapped;
   SysRes opened;
   Range range;

   if (!pl_stacks || file == NULL)
      return;
   if (entries == NULL) {
      entries = VG_(newXA)(VG_(malloc), "pagelab.entries", VG_(free), sizeof(Entry));
      ranges = VG_(newXA)(VG_(malloc), "pagelab.ranges", VG_(free), sizeof(Range));
   }
   opened = VG_(open)(file, VKI_O_RDONLY, 0);
   if (sr_isError(opened))
      return;
   mapped.address = address;
   mapped.length = length;
   mapped.offset = offset;
   mapped.has_functions = False;
   look_in_file((Int)sr_Res(opened), &mapped);
   VG_(close)((Int)sr_Res(opened));
   if (mapped.has_functions) {
      range.start = address;
      range.end = address + length;
      VG_(addToXA)(ranges, &range);
   }
}

void pl_allocations_unmapped(Addr address, SizeT length)
{
   Word i;

   if (entries == NULL)
      return;
   for (i = VG_(sizeXA)(entries) - 1; i >= 0; i--)
      if (((Entry*)VG_(indexXA)(entries, i))->address - address < length)
         VG_(removeIndexXA)(entries, i);
   for (i = VG_(sizeXA)(ranges) - 1; i >= 0; i--)
      if (((Range*)VG_(indexXA)(ranges, i))->start - address < length)
         VG_(removeIndexXA)(ranges, i);
}

/* ---- calls ---- */

static void send_freed(Addr block)
{
   if (block == 0)
      return;
   pl_begin(PL_FREED, 8);
   pl_put64(block);
   pl_end();
}

static void send_allocated(Addr block, SizeT bytes)
{
   if (block == 0)
      return;
   pl_begin(PL_ALLOCATED, 16);
   pl_put64(block);
   pl_put64(bytes);
   pl_end();
}

/* An allocator's function begins. */
static void on_entry(UWord signature, UWord sp, UWord first, UWord second, UWord third)
{
   Call* call;

   if (signature == FREES) {
      send_freed(first);
      return;
   }
   call = &calls[running];
   /* A call from below the one under way is the allocator's own. One from above has been left without returning. */
   if (call->sp != 0 && sp < call->sp)
      return;
   call->signature = (Signature)signature;
   call->arguments[0] = first;
   call->arguments[1] = second;
   call->arguments[2] = third;
   set_call(sp);
}

/* The allocator returns what it was called for. */
static void on_return(UWord result)
{
   const Call* call = &calls[running];
   const UWord* arguments = call->arguments;

   set_call(0);
   switch (call->signature) {
   case BYTES: send_allocated(result, arguments[0]); break;
   case NUMBER_BYTES: send_allocated(result, arguments[0] * arguments[1]); break;
   case ALIGNED: send_allocated(result, arguments[1]); break;
   case RESIZED:
      /* It frees the old block if it succeeds, or if it was asked for nothing. */
      if (result != 0 || arguments[1] == 0)
         send_freed(arguments[0]);
      send_allocated(result, arguments[1]);
      break;
   case RESIZED_NUMBER:
      if (result != 0 || arguments[1] * arguments[2] == 0)
         send_freed(arguments[0]);
      send_allocated(result, arguments[1] * arguments[2]);
      break;
   case BY_POINTER:
      if (result == 0)
         send_allocated(*(const UWord*)arguments[0], arguments[2]);
      break;
   case FREES: break;
   }
}

static IRExpr* get_register(Int offset)
{
   return IRExpr_Get(offset, Ity_I64);
}

static IRExpr* assign(IRSB* out, IRType type, IRExpr* value)
{
   IRTemp temp = newIRTemp(out->tyenv, type);

   addStmtToIRSB(out, IRStmt_WrTmp(temp, value));
   return IRExpr_RdTmp(temp);
}

void pl_allocations_instrument_entry(IRSB* out, Addr pc)
{
   Word i;

   if (entries == NULL)
      return;
   for (i = 0; i < VG_(sizeXA)(entries); i++) {
      const Entry* entry = VG_(indexXA)(entries, i);
      if (entry->address != pc)
         continue;
      IRExpr** arguments = mkIRExprVec_5(IRExpr_Const(IRConst_U64(entry->signature)),
                                         assign(out, Ity_I64, get_register(offsetof(VexGuestAMD64State, guest_RSP))),
                                         assign(out, Ity_I64, get_register(offsetof(VexGuestAMD64State, guest_RDI))),
                                         assign(out, Ity_I64, get_register(offsetof(VexGuestAMD64State, guest_RSI))),
                                         assign(out, Ity_I64, get_register(offsetof(VexGuestAMD64State, guest_RDX))));
      addStmtToIRSB(out, IRStmt_Dirty(unsafeIRDirty_0_N(0, "on_entry", VG_(fnptr_to_fnentry)(on_entry), arguments)));
      return;
   }
}

void pl_allocations_instrument_return(IRSB* out, Addr pc)
{
   Word i;

   for (i = 0; entries != NULL && i < VG_(sizeXA)(ranges); i++) {
      const Range* range = VG_(indexXA)(ranges, i);
      if (pc < range->start || pc >= range->end)
         continue;
      IRExpr* sp = assign(out, Ity_I64, get_register(offsetof(VexGuestAMD64State, guest_RSP)));
      IRExpr* expected = assign(out, Ity_I64,
                                IRExpr_Load(Iend_LE, Ity_I64, IRExpr_Const(IRConst_U64((Addr)&returning_sp))));
      IRExpr* result = assign(out, Ity_I64, get_register(offsetof(VexGuestAMD64State, guest_RAX)));
      IRDirty* call = unsafeIRDirty_0_N(0, "on_return", VG_(fnptr_to_fnentry)(on_return), mkIRExprVec_1(result));
      call->guard = assign(out, Ity_I1, IRExpr_Binop(Iop_CmpEQ64, sp, expected));
      addStmtToIRSB(out, IRStmt_Dirty(call));
      return;
   }
}

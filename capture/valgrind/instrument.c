/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_basics.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_xarray.h"

#include "allocations.h"
#include "floating_point.h"
#include "popf.h"
#include "instrument.h"
#include "origins.h"
#include "own_code.h"
#include "stream.h"

/* A segment is a stretch of a superblock that is executed whole or, a fault apart, not at all: it ends where the
   superblock can be left. What is the same each time (instructions, program counters, sizes, kinds) is sent once
   when the superblock is translated; what executing it adds to the stream is its number and the addresses:

      segment number (4 bytes)  address (6 bytes) × accesses

   An address is stored with 8 bytes, and the next store overwrites the upper two, so the stores are in rising
   order. pl_pos moves past the record only where the segment ends; a fault in the middle leaves it behind
   pl_pos, where pl_fault finds it. */

#define SEGMENT_WORD_BYTES 4
#define ADDRESS_BYTES 6
#define ACCESSES_MAX 200
#define PIECES_MAX 64

typedef enum { LOAD = 0, STORE = 1, MODIFY = 2 } Kind;

/* Whether a segment ends with a call, whose last access stores the return address, or a return, whose last access loads
   it. */
typedef enum { NO_TRANSFER = 0, CALL = 1, RETURN = 2 } Transfer;

typedef struct {
   Addr pc;
   const IRExpr* address; /* the atom, to recognise a load and a store of the same place */
   UInt gap;              /* instructions since the segment's previous access, this one's included */
   UShort size;
   UChar kind;
   Bool conditional; /* address 0 stands for an access that did not happen */
   UInt instruction; /* number in the superblock */
   Origin origin;    /* of its address and, of a store, its data */
} Access;

/* A stretch of consecutive guest bytes of a segment. */
typedef struct {
   Addr start;
   UInt length;
} Piece;

typedef struct {
   IRSB* out;
   IRTemp pos;  /* value of pl_pos when the superblock began */
   UInt offset; /* bytes that the superblock's closed segments take */
   UInt made;   /* accesses of the superblock's closed segments */
   /* The instruction being instrumented. */
   Addr pc;
   UInt length;
   UInt instruction;
   /* The open segment. */
   Bool open;
   UInt number;
   UInt accesses_n;
   UInt gap;
   UInt pieces_n;
   Access accesses[ACCESSES_MAX];
   Piece pieces[PIECES_MAX];
   XArray* numbers; /* of all segments of this superblock */
} Builder;

/* Segment numbers of a live translation, by the address it was made for. */
typedef struct _Superblock {
   struct _Superblock* next;
   UWord origin;
   UInt numbers_n;
   /* Valgrind holds two translations for this address, so that a discard does not say which one it means. */
   Bool pinned;
   UInt numbers[];
} Superblock;

static VgHashTable* superblocks;
static XArray* free_numbers;
static UInt numbers_used;
static Builder builder;

void pl_instrument_init(void)
{
   superblocks = VG_(HT_construct)("pagelab.superblocks");
   free_numbers = VG_(newXA)(VG_(malloc), "pagelab.free-numbers", VG_(free), sizeof(UInt));
}

static UInt take_number(void)
{
   Word free_n = VG_(sizeXA)(free_numbers);
   if (free_n > 0) {
      UInt number = *(UInt*)VG_(indexXA)(free_numbers, free_n - 1);
      VG_(dropTailXA)(free_numbers, 1);
      return number;
   }
   return numbers_used++;
}

void pl_discard_superblock(Addr origin, VexGuestExtents extents)
{
   Superblock* block = VG_(HT_lookup)(superblocks, origin);
   UInt i;

   (void)extents;
   if (block == NULL || block->pinned)
      return;
   VG_(HT_remove)(superblocks, origin);
   for (i = 0; i < block->numbers_n; i++)
      VG_(addToXA)(free_numbers, &block->numbers[i]);
   VG_(free)(block);
}

static void remember_superblock(Addr origin, XArray* numbers)
{
   Word n = VG_(sizeXA)(numbers), i;
   Superblock* same = VG_(HT_lookup)(superblocks, origin);
   Superblock* block;

   if (same != NULL) {
      same->pinned = True;
      return;
   }
   block = VG_(malloc)("pagelab.superblock", sizeof(Superblock) + n * sizeof(UInt));
   block->origin = origin;
   block->numbers_n = (UInt)n;
   block->pinned = False;
   for (i = 0; i < n; i++)
      block->numbers[i] = *(UInt*)VG_(indexXA)(numbers, i);
   VG_(HT_add_node)(superblocks, block);
}

/* ---- intermediate code ---- */

static IRExpr* u64(ULong value)
{
   return IRExpr_Const(IRConst_U64(value));
}

static IRExpr* assign(IRType type, IRExpr* value)
{
   IRTemp temp = newIRTemp(builder.out->tyenv, type);
   addStmtToIRSB(builder.out, IRStmt_WrTmp(temp, value));
   return IRExpr_RdTmp(temp);
}

static IRExpr* place(UInt offset)
{
   if (offset == 0)
      return IRExpr_RdTmp(builder.pos);
   return assign(Ity_I64, IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(builder.pos), u64(offset)));
}

static void store(IRExpr* address, IRExpr* value)
{
   addStmtToIRSB(builder.out, IRStmt_Store(Iend_LE, address, value));
}

/* At the start of a superblock: makes room for all it can store and fetches pl_pos. */
static void begin_superblock(void)
{
   IRExpr* before = assign(Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, u64((Addr)&pl_pos)));
   IRExpr* limit = assign(Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, u64((Addr)&pl_limit)));
   IRExpr* full = assign(Ity_I1, IRExpr_Binop(Iop_CmpLT64U, limit, before));
   IRDirty* flush = unsafeIRDirty_0_N(0, "pl_stream_flush", VG_(fnptr_to_fnentry)(pl_stream_flush),
                                      mkIRExprVec_0());
   flush->guard = full;
   addStmtToIRSB(builder.out, IRStmt_Dirty(flush));
   builder.pos = newIRTemp(builder.out->tyenv, Ity_I64);
   addStmtToIRSB(builder.out, IRStmt_WrTmp(builder.pos, IRExpr_Load(Iend_LE, Ity_I64, u64((Addr)&pl_pos))));
}

/* ---- segments ---- */

static UInt record_bytes(void)
{
   return SEGMENT_WORD_BYTES + ADDRESS_BYTES * builder.accesses_n;
}

static void open_segment(void)
{
   if (builder.open)
      return;
   builder.open = True;
   builder.number = take_number();
   VG_(addToXA)(builder.numbers, &builder.number);
   builder.accesses_n = 0;
   builder.gap = 0;
   builder.pieces_n = 0;
   store(place(builder.offset), IRExpr_Const(IRConst_U32(builder.number)));
}

/* An origin as the encoder takes it: accesses back from number `at` of the superblock, and registers at the segment's
   entry. */
static void put_origin(Origin origin, UInt at)
{
   Waited waited = pl_waited_for(origin);

   pl_put16(waited.load == NO_LOAD ? 0 : (UShort)(at - (UInt)waited.load));
   pl_put8(waited.at_once);
   origin.registers = waited.registers;
   pl_put64(pl_registers_at_entry(origin));
}

#define ORIGIN_BYTES 11

/* Registers whose values come from elsewhere than the encoder knows, and the branch that ends the segment, if there is
   one. */
static void put_outcome(const Origin* guard)
{
   UInt end = builder.made + builder.accesses_n;
   ULong changed = pl_registers_that_have_changed();

   pl_put8((UChar)__builtin_popcountll(changed));
   for (; changed != 0; changed &= changed - 1) {
      UInt number = (UInt)__builtin_ctzll(changed);
      pl_put8((UChar)number);
      put_origin(pl_origin_of_register(number), end);
   }
   pl_put8(guard != NULL);
   if (guard != NULL) {
      pl_put64(builder.pc + builder.length);
      put_origin(*guard, end);
   }
}

static void send_descriptor(const Origin* guard, Transfer transfer)
{
   UInt i;

   pl_begin(PL_SEGMENT, 16 + builder.pieces_n * 12 + builder.accesses_n * (16 + ORIGIN_BYTES)
                           + REGISTERS * (1 + ORIGIN_BYTES) + 11 + ORIGIN_BYTES);
   pl_put32(builder.number);
   pl_put32(builder.gap);
   pl_put16((UShort)builder.pieces_n);
   pl_put16((UShort)builder.accesses_n);
   for (i = 0; i < builder.pieces_n; i++) {
      pl_put64(builder.pieces[i].start);
      pl_put32(builder.pieces[i].length);
   }
   for (i = 0; i < builder.accesses_n; i++) {
      Access* access = &builder.accesses[i];
      pl_put64(access->pc);
      pl_put32(access->gap);
      pl_put16(access->size);
      pl_put8(access->kind);
      pl_put8(access->conditional);
      put_origin(access->origin, builder.made + i);
   }
   put_outcome(guard);
   pl_put8((UChar)transfer);
   pl_end();
}

/* Ends the open segment, with a conditional branch if it has a `guard`: from here on its record stands. */
static void end_segment(const Origin* guard, Transfer transfer)
{
   if (!builder.open)
      return;
   builder.open = False;
   builder.offset += record_bytes();
   tl_assert(builder.offset < PL_SLACK_BYTES);
   store(u64((Addr)&pl_pos), place(builder.offset));
   send_descriptor(guard, transfer);
   builder.made += builder.accesses_n;
   pl_origins_end_segment();
}

static void close_segment(const Origin* guard)
{
   end_segment(guard, NO_TRANSFER);
}

static void begin_instruction(Addr pc, UInt length)
{
   Piece* last;

   if (builder.open && builder.pieces_n == PIECES_MAX)
      close_segment(NULL);
   open_segment();
   builder.pc = pc;
   builder.length = length;
   builder.instruction++;
   builder.gap++;
   last = builder.pieces_n > 0 ? &builder.pieces[builder.pieces_n - 1] : NULL;
   if (last != NULL && last->start + last->length == pc) {
      last->length += length;
   } else {
      builder.pieces[builder.pieces_n].start = pc;
      builder.pieces[builder.pieces_n].length = length;
      builder.pieces_n++;
   }
}

/* A load and a store of the same place by one instruction are one access that modifies. */
static Bool merge_into_modify(IRExpr* address, SizeT size)
{
   UInt i;

   if (!builder.open)
      return False;
   for (i = 0; i < builder.accesses_n; i++) {
      Access* earlier = &builder.accesses[i];
      if (earlier->instruction == builder.instruction && earlier->kind != STORE && !earlier->conditional
          && earlier->size == size && eqIRAtom(earlier->address, address)) {
         earlier->kind = MODIFY;
         return True;
      }
   }
   return False;
}

/* Returns the access's number in the superblock as the origin of what it loads. `data` is what it stores, or NULL. */
static Origin record_access(Kind kind, IRExpr* address, SizeT size, IRExpr* guard, IRExpr* data)
{
   Access* access;
   Origin of_address = pl_origin_of(address);

   if (guard != NULL && guard->tag == Iex_Const) {
      if (!guard->Iex.Const.con->Ico.U1)
         return pl_no_origin;
      guard = NULL;
   }
   if (kind != LOAD)
      pl_own_code_stores(builder.out, address, size, guard);
   if (kind != LOAD && guard == NULL && merge_into_modify(address, size))
      return pl_no_origin;
   if (builder.open && builder.accesses_n == ACCESSES_MAX)
      close_segment(NULL);
   open_segment();
   if (guard != NULL)
      store(place(builder.offset + record_bytes()), assign(Ity_I64, IRExpr_ITE(guard, address, u64(0))));
   else
      store(place(builder.offset + record_bytes()), address);
   access = &builder.accesses[builder.accesses_n++];
   access->pc = builder.pc;
   access->address = address;
   access->gap = builder.gap;
   access->size = (UShort)(size > 4096 ? 4096 : size);
   access->kind = (UChar)kind;
   access->conditional = guard != NULL;
   access->instruction = builder.instruction;
   access->origin = of_address;
   if (data != NULL)
      access->origin = pl_of_both(access->origin, pl_origin_of(data));
   builder.gap = 0;
   return pl_loaded(builder.made + builder.accesses_n - 1, of_address);
}

/* The part of an access that reads or writes as seen from a helper's declared effect. */
static Origin record_effect(IREffect effect, IRExpr* address, SizeT size, IRExpr* guard)
{
   switch (effect) {
   case Ifx_Read: return record_access(LOAD, address, size, guard, NULL);
   case Ifx_Write: record_access(STORE, address, size, guard, NULL); return pl_no_origin;
   case Ifx_Modify: return record_access(MODIFY, address, size, guard, NULL);
   default: return pl_no_origin;
   }
}

/* Whether the instruction is Jcc, LOOPcc or JrCXZ: Intel's manual, volume 2, opcodes 70-7F, 0F 80-8F and E0-E3. Exits
   that the translation of other instructions has (REP and the like) are no branches of the program. */
static Bool is_conditional_branch(Addr pc, UInt length)
{
   const UChar* code = (const UChar*)pc;
   UInt i = 0;

   while (i + 2 < length && (code[i] == 0x2e || code[i] == 0x3e || code[i] == 0x67 || code[i] == 0xf2))
      i++;
   if (i + 2 > length)
      return False;
   return (code[i] & 0xf0) == 0x70 || (code[i] & 0xfc) == 0xe0 || (code[i] == 0x0f && (code[i + 1] & 0xf0) == 0x80);
}

static void instrument_exit(const IRExpr* guard)
{
   Origin origin = pl_origin_of(guard);

   close_segment(is_conditional_branch(builder.pc, builder.length) ? &origin : NULL);
}

/* A guarded load yields the other value if it is not made. */
static void instrument_guarded_load(const IRLoadG* load_g)
{
   IRType memory_type = Ity_INVALID, widened = Ity_INVALID;
   Origin origin;

   typeOfIRLoadGOp(load_g->cvt, &widened, &memory_type);
   origin = record_access(LOAD, load_g->addr, sizeofIRType(memory_type), load_g->guard, NULL);
   pl_set_temporary(load_g->dst, pl_of_both(origin, pl_origin_of(load_g->alt)));
}

/* x86 writes the destination whether the comparison holds or not. */
static void instrument_compare_and_swap(const IRCAS* cas)
{
   SizeT size = sizeofIRType(typeOfIRExpr(builder.out->tyenv, cas->dataLo));
   Origin origin = record_access(MODIFY, cas->addr, cas->dataHi != NULL ? 2 * size : size, NULL, NULL);

   pl_set_temporary(cas->oldLo, origin);
   if (cas->oldHi != IRTemp_INVALID)
      pl_set_temporary(cas->oldHi, origin);
}

static void instrument_helper(const IRDirty* dirty)
{
   Origin origin = pl_no_origin;

   if (dirty->mFx != Ifx_None)
      origin = record_effect(dirty->mFx, dirty->mAddr, (SizeT)dirty->mSize, dirty->guard);
   pl_helper_was_called(dirty, origin);
}

static void instrument_statement(IRStmt* statement)
{
   IRTypeEnv* types = builder.out->tyenv;

   switch (statement->tag) {
   case Ist_IMark: {
      Addr pc = statement->Ist.IMark.addr + statement->Ist.IMark.delta;
      pl_own_code_leave(builder.out, builder.pc, pc, builder.open);
      begin_instruction(pc, statement->Ist.IMark.len);
      break;
   }
   case Ist_WrTmp: {
      IRExpr* value = statement->Ist.WrTmp.data;
      Origin origin = value->tag == Iex_Load ? record_access(LOAD, value->Iex.Load.addr,
                                                             sizeofIRType(value->Iex.Load.ty), NULL, NULL)
                                             : pl_origin_of(value);
      pl_set_temporary(statement->Ist.WrTmp.tmp, origin);
      break;
   }
   case Ist_Put:
      pl_set_register(statement->Ist.Put.offset, sizeofIRType(typeOfIRExpr(types, statement->Ist.Put.data)),
                      pl_origin_of(statement->Ist.Put.data));
      break;
   case Ist_Store:
      record_access(STORE, statement->Ist.Store.addr,
                    sizeofIRType(typeOfIRExpr(types, statement->Ist.Store.data)), NULL, statement->Ist.Store.data);
      break;
   case Ist_StoreG: {
      IRStoreG* store_g = statement->Ist.StoreG.details;
      record_access(STORE, store_g->addr, sizeofIRType(typeOfIRExpr(types, store_g->data)), store_g->guard,
                    store_g->data);
      break;
   }
   case Ist_LoadG: instrument_guarded_load(statement->Ist.LoadG.details); break;
   case Ist_CAS: instrument_compare_and_swap(statement->Ist.CAS.details); break;
   case Ist_LLSC:
      if (statement->Ist.LLSC.storedata == NULL) {
         SizeT size = sizeofIRType(typeOfIRTemp(types, statement->Ist.LLSC.result));
         pl_set_temporary(statement->Ist.LLSC.result,
                          record_access(LOAD, statement->Ist.LLSC.addr, size, NULL, NULL));
      } else {
         record_access(STORE, statement->Ist.LLSC.addr,
                       sizeofIRType(typeOfIRExpr(types, statement->Ist.LLSC.storedata)), NULL,
                       statement->Ist.LLSC.storedata);
         pl_set_temporary(statement->Ist.LLSC.result, pl_no_origin);
      }
      break;
   case Ist_Dirty: instrument_helper(statement->Ist.Dirty.details); break;
   case Ist_Exit: instrument_exit(statement->Ist.Exit.guard); break;
   default: break;
   }
}

IRSB* pl_instrument(VgCallbackClosure* closure, IRSB* in, const VexGuestLayout* layout,
                    const VexGuestExtents* extents, const VexArchInfo* host, IRType guest_word, IRType host_word)
{
   Int i = 0;

   (void)layout;
   (void)host;
   if (guest_word != host_word)
      VG_(tool_panic)("guest and host words differ in size");
   builder.out = deepCopyIRSBExceptStmts(in);
   builder.offset = 0;
   builder.made = 0;
   builder.open = False;
   builder.instruction = 0;
   pl_origins_begin((UInt)in->tyenv->types_used);
   pl_own_code_begin_superblock(extents);
   pl_floating_point_begin_superblock();
   builder.numbers = VG_(newXA)(VG_(malloc), "pagelab.numbers", VG_(free), sizeof(UInt));

   /* What comes before the first instruction is Valgrind's own and stays as it is. */
   while (i < in->stmts_used && in->stmts[i]->tag != Ist_IMark)
      addStmtToIRSB(builder.out, in->stmts[i++]);
   if (i < in->stmts_used) {
      pl_allocations_instrument_entry(builder.out, in->stmts[i]->Ist.IMark.addr + in->stmts[i]->Ist.IMark.delta);
      begin_superblock();
   }
   for (; i < in->stmts_used; i++) {
      IRStmt* statement = in->stmts[i];
      if (statement == NULL || statement->tag == Ist_NoOp)
         continue;
      instrument_statement(statement);
      pl_floating_point_statement(builder.out, statement);
      addStmtToIRSB(builder.out, statement);
      if (statement->tag == Ist_IMark)
         pl_popf_instruction(builder.out, statement->Ist.IMark.addr, statement->Ist.IMark.len);
   }
   if (in->jumpkind == Ijk_Sys_syscall)
      pl_kernel_was_called();
   end_segment(NULL, in->jumpkind == Ijk_Call ? CALL : in->jumpkind == Ijk_Ret ? RETURN : NO_TRANSFER);
   if (in->jumpkind == Ijk_Ret)
      pl_allocations_instrument_return(builder.out, builder.pc);

   remember_superblock(closure->nraddr, builder.numbers);
   VG_(deleteXA)(builder.numbers);
   return builder.out;
}

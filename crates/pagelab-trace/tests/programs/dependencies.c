/* Accesses whose addresses, data and branches come from known loads, all of them to memory at a fixed place. */

#include <stdint.h>
#include <sys/mman.h>

#define PLACE 0x200000000

int main(void)
{
   char* memory = mmap((void*)PLACE, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
   int i;

   if (memory == MAP_FAILED)
      return 1;
   for (i = 0; i < 8; i++)
      *(uint64_t*)(memory + i * 4096) = PLACE + (i + 1) * 4096;
   *(uint64_t*)(memory + 0x10000) = 0x10;
   __asm__ volatile("movabs $0x200000000, %%rdi\n"
                    "movl $4, %%ecx\n"
                    "1: movq (%%rdi), %%rdi\n" /* a chain of four loads */
                    "decl %%ecx\n"
                    "jnz 1b\n"
                    "movabs $0x200010000, %%rsi\n"
                    "movq (%%rsi), %%rax\n" /* 4: 0x10 */
                    "leaq 8(%%rsi,%%rax,2), %%rbx\n"
                    "movl (%%rbx), %%edx\n"           /* 5: address from 4 */
                    "movq %%rdx, 0x100(%%rsi)\n"      /* 6: data from 5 */
                    "movq %%rax, %%xmm3\n"
                    "movq %%xmm3, %%r9\n"
                    "movq (%%rsi,%%r9), %%r10\n"      /* 7: from 4 by a vector register */
                    "xchgq %%rax, %%r10\n"
                    "movq (%%rsi,%%r10), %%r11\n"     /* 8: from 4, exchanged */
                    "cmpl $0, 0x200(%%rsi)\n"         /* 9 */
                    "je 2f\n"                         /* taken, waits for 9 */
                    "nop\n"
                    "2: movq 0x208(%%rsi), %%r12\n"   /* 10 */
                    "testq %%r12, %%r12\n"
                    "jne 3f\n"                        /* not taken, waits for 10 */
                    "movl $0, %%r13d\n"
                    "3: movq %%r13, 0x300(%%rsi)\n"   /* 11 */
                    "incq 0x308(%%rsi)\n"             /* 12: modifies */
                    "xorl %%r14d, %%r14d\n"           /* Valgrind knows that this is 0 */
                    "movq 0x400(%%rsi,%%r14), %%r15\n" /* 13 */
                    "cmpq %%rax, %%rax\n"
                    "cmoveq %%r15, %%rbx\n"
                    "movb (%%rsi,%%r15), %%bl\n"      /* 14: from 13 */
                    "movzbl %%bl, %%ebx\n"
                    "movq (%%rsi,%%rbx), %%rcx\n"     /* 15: a part of rbx from 14 */
                    "movabs $0x200010000, %%rsi\n"    /* known at once from here on */
                    "movq (%%rsi), %%rax\n"           /* 16: 0x10 */
                    "movq 0x700(%%rsi,%%rax), %%rdx\n" /* 17: from 16 */
                    "movq 0x708(%%rsi), %%r8\n"       /* 18: at an address that is known at once */
                    "addq %%r8, %%rdx\n"
                    "movq 0x710(%%rsi,%%rdx), %%r9\n" /* 19: from 17, as 18 is there early */
                    "movq 0x718(%%rsi,%%r9), %%r10\n" /* 20: from 19 */
                    "movq 0x720(%%rsi,%%rdx), %%r11\n" /* 21: from 17, which 20 comes from, too */
                    "addq %%r10, %%r11\n"
                    "movq 0x728(%%rsi,%%r11), %%r12\n" /* 22: from 20, as 21 issues no later */
                    "pushq $0\n"
                    "movq (%%rsp), %%r14\n"           /* from the stack, elsewhere */
                    "addq $8, %%rsp\n"
                    "testq %%r12, %%r12\n"
                    "jne 4f\n"                        /* not taken, waits for 22 */
                    "nop\n"
                    "4: addq %%r12, %%r14\n"
                    "movq 0x730(%%rsi,%%r14), %%r9\n" /* 23: from 22, as what was on the stack is there early */
                    "movabs $0x200010000, %%rsi\n"
                    "movq 0x738(%%rsi), %%rax\n"      /* 24: at an address that is known at once */
                    "leaq (%%rax,%%r13), %%rdx\n"
                    "movq 0x740(%%rsi,%%rdx), %%r10\n" /* 25: from 24, as nothing was loaded into r13 */
                    "leaq (%%rax,%%r12), %%rdx\n"
                    "movq 0x748(%%rsi,%%rdx), %%r11\n" /* 26: from 22 rather than 24 */
                    "movq 0x750(%%rsi,%%rax), %%rbx\n" /* 27: from 24 */
                    "movq 0x758(%%rsi,%%rbx), %%rcx\n" /* 28: from 27 */
                    "cmpq %%rcx, %%rbx\n"
                    "leaq 5f(%%rip), %%rdx\n"
                    "jmpq *%%rdx\n"                    /* flags go to another superblock */
                    "5: je 6f\n"                       /* taken, waits for 28, the second of what is compared */
                    "nop\n"
                    "6: movq 0x760(%%rsi), %%r9\n"     /* 29 */
                    "cmpq %%rbx, %%rcx\n"
                    "leaq 7f(%%rip), %%rdx\n"
                    "jmpq *%%rdx\n"
                    "7: sete %%bl\n"                   /* waits for 28, the first of what is compared */
                    "movzbl %%bl, %%ebx\n"
                    "movq 0x768(%%rsi,%%rbx), %%r9\n" /* 30: from 28 by the flags */
                    ::: "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm3",
                    "cc", "memory");
   return 0;
}

/* What the recorder is measured on: accesses ROUNDS BLOCKS.

   Three passes, so that the code of the last one is translated and linked before. A pass runs a loop of up to eight
   accesses: a chase of pointers, a load whose address is known at once, two of vectors, a read-modify-write, a store in
   half of the rounds, a call and its return. The last pass runs it ROUNDS times, the others 100 times. The last one also
   runs BLOCKS pieces of code, up to 64, which no other pass runs, so they cost their translation. Each pass ends with
   getppid, whose argument marks the last pass.

   Without a library, so that it is the same on every machine. */

#define GETPPID 110
#define EXIT 60
#define MARK 0x6d61726b
#define ENTRIES 4096
#define BLOCK_SHIFT 5

.globl _start
.text
_start:
    mov 16(%rsp), %rsi
    call decimal
    mov %rax, %r12
    mov 24(%rsp), %rsi
    call decimal
    mov %rax, %r13

    /* A ring of entries of 64 bytes: the next one is 1021 entries on. */
    lea entries(%rip), %rbx
    xor %ecx, %ecx
1:  lea 1021(%rcx), %rax
    and $ENTRIES - 1, %eax
    mov %rcx, %rdx
    shl $6, %rax
    shl $6, %rdx
    add %rbx, %rax
    mov %rax, (%rbx, %rdx)
    inc %ecx
    cmp $ENTRIES, %ecx
    jne 1b

    mov %rbx, %rsi
    mov $1, %r8d
    xor %r15d, %r15d
pass:
    mov $100, %r14d
    xor %eax, %eax
    cmp $2, %r15d
    cmove %r12, %r14
    cmove %r13, %rax
    mov %rax, %rbp
    call rounds
    shl $BLOCK_SHIFT, %rbp
    lea blocks_end(%rip), %rax
    sub %rbp, %rax
    jmp *%rax

rounds:
    test %r14, %r14
    jz 3f
2:  mov (%rsi), %rsi
    imul $1664525, %r8d, %r8d
    add $1013904223, %r8d
    mov %r8d, %eax
    shr $14, %eax
    and $-64, %eax
    mov 8(%rbx, %rax), %r9
    movups 16(%rbx, %rax), %xmm0
    movups %xmm0, 32(%rbx, %rax)
    incq 48(%rsi)
    test $0x40000000, %r8d
    jz 4f
    mov %r9, 56(%rsi)
4:  call sum
    dec %r14
    jnz 2b
3:  ret

sum:
    add %r9, %r10
    ret

.p2align BLOCK_SHIFT
.rept 64
    mov 8(%rbx), %rax
    mov %rax, 24(%rbx)
    cmp %rax, %rbx
    je blocks_end
    .p2align BLOCK_SHIFT
.endr
blocks_end:
    lea MARK - 1(%r15), %edi
    mov $GETPPID, %eax
    syscall
    inc %r15d
    cmp $3, %r15d
    jne pass
    xor %edi, %edi
    mov $EXIT, %eax
    syscall

/* The number that the text at %rsi begins with, in %rax. */
decimal:
    xor %eax, %eax
1:  movzbl (%rsi), %ecx
    sub $'0', %ecx
    cmp $9, %ecx
    ja 2f
    imul $10, %rax, %rax
    add %rcx, %rax
    inc %rsi
    jmp 1b
2:  ret

.bss
.p2align 12
entries:
    .skip ENTRIES * 64

.section .note.GNU-stack, "", @progbits

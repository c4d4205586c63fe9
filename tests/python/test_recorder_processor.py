"""Instructions that Valgrind carries out otherwise than a processor: each works, or the trace says so."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from conftest import Pagelab, needs_recorder
from test_recorder_programs import compiled, losses

pytestmark = needs_recorder

ROUNDING = "it sets a rounding mode other than to nearest"
DENORMALS = "it sets denormal numbers to be taken as zero"
ALIGNMENT = "it sets the flag AC for alignment checks (popf)"
TRAPS = "it asks for SIGFPE at floating-point exceptions"
FLAGS = "it asks which floating-point exceptions have occurred"

ROUNDS = r"""
#include <fenv.h>
int main(void) { fesetround(FE_UPWARD); volatile double one = 1, three = 3; printf("%.3f\n", one / three); }
"""
TRAPPING = r"""
#include <fenv.h>
int main(void) { feenableexcept(FE_OVERFLOW); puts("enabled"); }
"""
ASKS = r"""
#include <fenv.h>
int main(void) { volatile double zero = 0; volatile double big = 1 / zero; puts("asked"); fetestexcept(FE_DIVBYZERO); }
"""
ASKS_ITSELF = r"""
#include <xmmintrin.h>
int main(void) { volatile unsigned flags = _MM_GET_EXCEPTION_STATE(); puts("asked"); }
"""
FLUSHES = r"""
#include <xmmintrin.h>
int main(void) { _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON); puts("flushes"); }
"""
PLAIN = r"""
#include <fenv.h>
#include <math.h>
/* Reads the mode, and sets what holds already. */
int main(void) {
    volatile double one = 1;
    fesetround(fegetround());
    printf("%.3f %.3f %.3f %g\n", sin(one), pow(one + 1, 0.5), exp(one), strtod("0.1", 0) / 3);
}
"""

SETS_FLAGS = r"""
int main(void) {
    __asm__ volatile("sub $128, %rsp; pushfq; orq $0x40000, (%rsp); popfq; nop; pushfq; andq $~0x40000, (%rsp); popfq;"
                     "add $128, %rsp");
    puts("set");
}
"""

OWN_CODE = r"""
/* Code that writes the operand of an instruction that comes later in the same basic block, and returns it. */
static unsigned char by_place[] = {
    0xc6, 0x05, 1, 0, 0, 0, 42, /* movb $42, 1(%rip) */
    0xb8, 0, 0, 0, 0,           /* mov $0, %eax */
    0xc3,
};
static unsigned char by_register[] = {
    0x48, 0xff, 0xc2,       /* inc %rdx */
    0x40, 0x88, 0x37,       /* mov %sil, (%rdi) */
    0x48, 0xff, 0xc2,       /* inc %rdx */
    0xb8, 0, 0, 0, 0,       /* mov $0, %eax */
    0x01, 0xd0,             /* add %edx, %eax */
    0xc3,
};
static unsigned char by_string[] = {
    0xf3, 0xaa,                   /* rep stosb */
    0xb8, 0, 0, 0, 0,             /* mov $0, %eax */
    0xc3,
};
int main(void) {
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    char *code = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at = code + 256;
    mprotect(code, PAGE, all);
    memcpy(code, by_place, sizeof by_place);
    printf("%d", ((int (*)(void))code)());
    for (int i = 1; i < 4; i++) {
        memcpy(at, by_register, sizeof by_register);
        for (int n = i; n < 100; n *= 10) printf(" %d", ((int (*)(char *, int, int))at)(at + 10, n, 100));
    }
    memcpy(code, by_string, sizeof by_string);
    int result;
    __asm__ volatile("call *%%rdx" : "=a"(result) : "a"(7), "c"(1L), "D"(code + 3), "d"(code) : "memory");
    printf(" %d\n", result);
}
"""


def _notes(pagelab: Pagelab) -> list[str]:
    notes: list[str] = json.loads(pagelab("trace", "info", "t.trace", "--json").stdout)["meta"]["notes"]
    return notes


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(ROUNDS, [ROUNDING], id="a rounding mode"),
        pytest.param(TRAPPING, [TRAPS], id="SIGFPE at exceptions"),
        pytest.param(ASKS, [FLAGS], id="flags of exceptions"),
        pytest.param(ASKS_ITSELF, [FLAGS], id="flags by an instruction"),
        pytest.param(FLUSHES, [DENORMALS], id="denormal numbers"),
        pytest.param(SETS_FLAGS, [ALIGNMENT], id="a flag on the stack"),
        pytest.param(PLAIN, [], id="nothing unusual"),
    ],
)
def test_a_trace_tells_of_modes_of_the_processor(
    pagelab: Pagelab, tmp_path: Path, source: str, expected: list[str]
) -> None:
    program = compiled(tmp_path, source, "-fno-builtin", "-Wl,--no-as-needed", "-lm")
    native = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    notes = _notes(pagelab)
    assert [any(text in note for note in notes) for text in expected] == [True] * len(expected), notes
    assert len(notes) == len(expected), notes
    assert losses(pagelab) == []


def test_code_that_rewrites_its_own_basic_block_runs_as_on_a_processor(pagelab: Pagelab, tmp_path: Path) -> None:
    program = compiled(tmp_path, OWN_CODE)
    native = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program)
    assert (recorded.returncode, recorded.stdout) == (0, native), recorded.stderr
    assert native == "42 103 112 104 122 105 132 7\n"
    assert losses(pagelab) == []
    # Each of the six stores by a register is recorded once, though it ends its block.
    accesses = pl.read_parquet(tmp_path / "t.trace" / "accesses-*.parquet")
    (code,) = (
        accesses.filter((pl.col("kind") == 1) & (pl.col("size") == 1) & (pl.col("vaddr") % 4096 == 266))
        .group_by("vaddr")
        .len()["len"]
        .to_list()
    )
    assert code == 6


def test_recorded_code_is_well_typed(pagelab: Pagelab, tmp_path: Path) -> None:
    """Valgrind's translator checks the tool's code, which it does only for those who ask."""
    launcher = shutil.which("valgrind.bin") or shutil.which("valgrind")
    stand_in = tmp_path / "bin" / "valgrind"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\nexec {launcher} --sanity-level=2 "$@"\n')
    stand_in.chmod(0o755)
    program = compiled(tmp_path, OWN_CODE)
    path = f"{stand_in.parent}:{os.environ['PATH']}"
    recorded = pagelab("record", "-q", "-o", "t.trace", "--", program, PATH=path)
    assert (recorded.returncode, recorded.stdout) == (0, "42 103 112 104 122 105 132 7\n"), recorded.stderr
    assert losses(pagelab) == []

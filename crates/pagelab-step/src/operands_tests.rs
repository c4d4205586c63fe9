use super::*;
use crate::extended::Layout;
use crate::instruction::InstructionDecoder;
use Kind::{Load, Modify, Store};

/// As on a processor with AVX-512 and tiles.
fn layout() -> Layout {
    Layout::new(
        &[(2, 576, 256), (5, 832, 64), (6, 896, 512), (7, 1408, 1024), (17, 2432, 64), (18, 2496, 8192)],
        1 << 18,
    )
}

struct State(Vec<u8>);

impl State {
    fn new() -> Self {
        let mut state = Self(vec![0; layout().bytes]);
        state.0[512..520].copy_from_slice(&u64::MAX.to_le_bytes());
        state
    }

    fn mask(mut self, number: usize, value: u64) -> Self {
        self.0[832 + number * 8..][..8].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Sets the first bytes of a vector register.
    fn vector(mut self, number: usize, bytes: &[u8]) -> Self {
        for (i, byte) in bytes.iter().enumerate() {
            let at = match (number, i) {
                (16.., _) => 1408 + (number - 16) * 64 + i,
                (_, ..16) => 160 + number * 16 + i,
                (_, ..32) => 576 + number * 16 + i - 16,
                _ => 896 + number * 32 + i - 32,
            };
            self.0[at] = *byte;
        }
        self
    }
}

fn words(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn registers() -> Registers {
    let mut registers = Registers { fs_base: 0x7000, ..Registers::default() };
    for (number, value) in registers.general.iter_mut().enumerate() {
        *value = 0x1_0000 * (number as u64 + 1);
    }
    registers
}

fn made(bytes: &[u8], registers: &Registers, state: State) -> Vec<(u64, u16, Kind)> {
    let instruction = InstructionDecoder::default().decode(bytes, 0x40_0000).expect("an instruction");
    let (layout, mut made) = (layout(), Vec::new());
    accesses(&instruction, registers, Some(Extended { layout: &layout, bytes: &state.0 }), &mut made);
    made.into_iter().map(|access| (access.address, access.bytes, access.kind)).collect()
}

fn plain(bytes: &[u8]) -> Vec<(u64, u16, Kind)> {
    made(bytes, &registers(), State::new())
}

#[test]
fn addresses_have_base_index_and_displacement() {
    // mov rax, [rbx + rcx*8 + 0x10]; add dword [rdi], 1; mov rax, fs:[0]; mov eax, [rip + 0x20]
    assert_eq!(plain(b"\x48\x8b\x44\xcb\x10"), [(0x4_0000 + 0x2_0000 * 8 + 0x10, 8, Load)]);
    assert_eq!(plain(b"\x83\x07\x01"), [(0x8_0000, 4, Modify)]);
    assert_eq!(plain(b"\x64\x48\x8b\x04\x25\x00\x00\x00\x00"), [(0x7000, 8, Load)]);
    assert_eq!(plain(b"\x8b\x05\x20\x00\x00\x00"), [(0x40_0026, 4, Load)]);
    // lea; prefetcht0 [rax]; nop [rax]; clflush [rax]
    for none in [&b"\x48\x8d\x03"[..], b"\x0f\x18\x08", b"\x0f\x1f\x00", b"\x0f\xae\x38"] {
        assert_eq!(plain(none), []);
    }
    // mov eax, [ebx] with bits above
    let mut registers = registers();
    registers.general[3] = 0xffff_0000_0000_1234;
    assert_eq!(made(b"\x67\x8b\x03", &registers, State::new()), [(0x1234, 4, Load)]);
}

#[test]
fn the_stack_is_implicit() {
    let stack = 0x5_0000;
    // push rax; pop rax; call; ret; leave; push [rbx]; pop [rbx]; call [rbx]; pushfq
    assert_eq!(plain(b"\x50"), [(stack - 8, 8, Store)]);
    assert_eq!(plain(b"\x58"), [(stack, 8, Load)]);
    assert_eq!(plain(b"\xe8\x00\x00\x00\x00"), [(stack - 8, 8, Store)]);
    assert_eq!(plain(b"\xc3"), [(stack, 8, Load)]);
    assert_eq!(plain(b"\xc9"), [(0x6_0000, 8, Load)]);
    assert_eq!(plain(b"\xff\x33"), [(0x4_0000, 8, Load), (stack - 8, 8, Store)]);
    assert_eq!(plain(b"\x8f\x03"), [(stack, 8, Load), (0x4_0000, 8, Store)]);
    assert_eq!(plain(b"\xff\x13"), [(0x4_0000, 8, Load), (stack - 8, 8, Store)]);
    assert_eq!(plain(b"\x9c"), [(stack - 8, 8, Store)]);
}

#[test]
fn operations_on_one_place_are_one_access() {
    // xchg [rbx], rax; lock cmpxchg [rbx], rcx; lock cmpxchg16b [rbx]; cmove rax, [rbx]
    assert_eq!(plain(b"\x48\x87\x03"), [(0x4_0000, 8, Modify)]);
    assert_eq!(plain(b"\xf0\x48\x0f\xb1\x0b"), [(0x4_0000, 8, Modify)]);
    assert_eq!(plain(b"\xf0\x48\x0f\xc7\x0b"), [(0x4_0000, 16, Modify)]);
    assert_eq!(plain(b"\x48\x0f\x44\x03"), [(0x4_0000, 8, Load)]);
}

#[test]
fn some_operands_are_not_encoded() {
    // clzero, the whole line; movdir64b rax, [rbx]; xlat; enter 16, 2
    let mut registers = registers();
    registers.general[0] = 0x1_0047;
    assert_eq!(made(b"\x0f\x01\xfc", &registers, State::new()), [(0x1_0040, 64, Store)]);
    assert_eq!(made(b"\x66\x0f\x38\xf8\x03", &registers, State::new()), [(0x4_0000, 64, Load), (0x1_0047, 64, Store)]);
    assert_eq!(made(b"\xd7", &registers, State::new()), [(0x4_0047, 1, Load)]);
    let (frame, stack) = (0x6_0000, 0x5_0000);
    let stores = (1..=3).map(|i| (stack - 8 * i, 8, Store));
    assert_eq!(plain(b"\xc8\x10\x00\x02"), [(frame - 8, 8, Load)].into_iter().chain(stores).collect::<Vec<_>>());
}

#[test]
fn a_bit_may_be_outside_its_operand() {
    let mut registers = registers();
    // bts [rbx], rax; bt [rbx], eax
    registers.general[0] = 1000;
    assert_eq!(made(b"\x48\x0f\xab\x03", &registers, State::new()), [(0x4_0000 + 15 * 8, 8, Modify)]);
    registers.general[0] = (-1_i32) as u32 as u64;
    assert_eq!(made(b"\x0f\xa3\x03", &registers, State::new()), [(0x4_0000 - 4, 4, Load)]);
}

#[test]
fn string_instructions_make_an_iteration() {
    // rep movsb; repne scasb; rep stosq; cmpsb
    assert_eq!(plain(b"\xf3\xa4"), [(0x7_0000, 1, Load), (0x8_0000, 1, Store)]);
    assert_eq!(plain(b"\xf2\xae"), [(0x8_0000, 1, Load)]);
    assert_eq!(plain(b"\xf3\x48\xab"), [(0x8_0000, 8, Store)]);
    assert_eq!(plain(b"\xa6"), [(0x7_0000, 1, Load), (0x8_0000, 1, Load)]);
    let instruction = InstructionDecoder::default().decode(b"\xf3\xa4", 0).unwrap();
    let before = registers();
    let mut after = before;
    after.general[1] -= 1;
    assert_eq!(iterations(&instruction, &before, &after), 1);
    assert_eq!(iterations(&instruction, &after, &after), 0);
}

#[test]
fn masks_select_elements() {
    let state = || State::new().mask(1, 0b0110_0000_0000_1011);
    // vmovdqu32 zmm0{k1}, [rbx]; vmovdqu32 [rbx]{k1}, zmm0
    let expected = |kind| [(0x4_0000, 8, kind), (0x4_000c, 4, kind), (0x4_0034, 8, kind)];
    assert_eq!(made(b"\x62\xf1\x7e\x49\x6f\x03", &registers(), state()), expected(Load));
    assert_eq!(made(b"\x62\xf1\x7e\x49\x7f\x03", &registers(), state()), expected(Store));
    // vpcompressd [rbx]{k1}, zmm0; vpexpandd zmm0{k1}, [rbx]
    assert_eq!(made(b"\x62\xf2\x7d\x49\x8b\x03", &registers(), state()), [(0x4_0000, 20, Store)]);
    assert_eq!(made(b"\x62\xf2\x7d\x49\x89\x03", &registers(), state()), [(0x4_0000, 20, Load)]);
    // vpmovqb [rbx]{k1}, zmm0: eight bytes
    let bytes = [(0x4_0000, 2, Store), (0x4_0003, 1, Store)];
    assert_eq!(made(b"\x62\xf2\x7e\x49\x32\x03", &registers(), state()), bytes);
    // vpaddd zmm0{k1}, zmm0, [rbx]: the whole operand, or nothing
    assert_eq!(made(b"\x62\xf1\x7d\x49\xfe\x03", &registers(), state()), [(0x4_0000, 64, Load)]);
    assert_eq!(made(b"\x62\xf1\x7d\x49\xfe\x03", &registers(), State::new()), []);
    // vpaddd zmm0{k1}, zmm0, [rbx]{1to16}
    assert_eq!(made(b"\x62\xf1\x7d\x59\xfe\x03", &registers(), state()), [(0x4_0000, 4, Load)]);
    // vmovups zmm0, [rbx + 0x40]: a compressed displacement
    assert_eq!(plain(b"\x62\xf1\x7c\x48\x10\x43\x01"), [(0x4_0040, 64, Load)]);
}

#[test]
fn vectors_select_elements() {
    // vmaskmovps ymm0, ymm2, [rbx]; vmaskmovps [rbx], ymm2, ymm0
    let state = || State::new().vector(2, &words(&[-1, 0, 0, -1, -1, 0, 0, i32::MIN]));
    let expected = |kind| [(0x4_0000, 4, kind), (0x4_000c, 8, kind), (0x4_001c, 4, kind)];
    assert_eq!(made(b"\xc4\xe2\x6d\x2c\x03", &registers(), state()), expected(Load));
    assert_eq!(made(b"\xc4\xe2\x6d\x2e\x03", &registers(), state()), expected(Store));
    // maskmovdqu xmm0, xmm2
    let state = State::new().vector(2, &[0x80, 0x7f, 0xff]);
    assert_eq!(made(b"\x66\x0f\xf7\xc2", &registers(), state), [(0x8_0000, 1, Store), (0x8_0002, 1, Store)]);
}

#[test]
fn gathers_and_scatters_touch_selected_elements() {
    // vpgatherdd ymm0, [rbx + ymm1*4], ymm2
    let state =
        State::new().vector(1, &words(&[0, 10, -1, 3, 4, 5, 6, 1000])).vector(2, &words(&[-1, 0, -1, 0, 0, 0, 0, -1]));
    let expected = [(0x4_0000, 4, Load), (0x4_0000 - 4, 4, Load), (0x4_0000 + 4000, 4, Load)];
    assert_eq!(made(b"\xc4\xe2\x6d\x90\x04\x8b", &registers(), state), expected);
    // vpgatherdd zmm0{k1}, [rbx + zmm17*4]
    let mut indices = vec![0; 16];
    (indices[0], indices[15]) = (7, 2);
    let state = || State::new().vector(17, &words(&indices)).mask(1, 0x8001);
    let expected = |kind| [(0x4_0000 + 28, 4, kind), (0x4_0000 + 8, 4, kind)];
    assert_eq!(made(b"\x62\xf2\x7d\x41\x90\x04\x8b", &registers(), state()), expected(Load));
    // vpscatterdd [rbx + zmm17*4]{k1}, zmm0
    assert_eq!(made(b"\x62\xf2\x7d\x41\xa0\x04\x8b", &registers(), state()), expected(Store));
    // vgatherqps xmm0, [rbx + ymm1*1], xmm2: four indices of eight bytes
    let state = State::new().vector(1, &words(&[1, 0, 2, 0, 3, 0, 4, 0])).vector(2, &words(&[-1, -1, -1, -1]));
    let expected: Vec<_> = (1..5).map(|i| (0x4_0000 + i, 4, Load)).collect();
    assert_eq!(made(b"\xc4\xe2\x6d\x93\x04\x0b", &registers(), state), expected);
}

#[test]
fn areas_have_the_bytes_of_their_components() {
    let mut registers = registers();
    (registers.general[0], registers.general[2]) = (0xe7, 0);
    // xsave64 [rbx]; xrstor64 [rbx]; xsavec64 [rbx]; fxsave64 [rbx]
    assert_eq!(made(b"\x48\x0f\xae\x23", &registers, State::new()), [(0x4_0000, 2432, Store)]);
    assert_eq!(made(b"\x48\x0f\xae\x2b", &registers, State::new()), [(0x4_0000, 2432, Load)]);
    assert_eq!(made(b"\x48\x0f\xc7\x23", &registers, State::new()), [(0x4_0000, 576 + 256 + 64 + 512 + 1024, Store)]);
    assert_eq!(made(b"\x48\x0f\xae\x03", &registers, State::new()), [(0x4_0000, 512, Store)]);
    // With tiles: more than an access of a trace can have.
    registers.general[0] = 0x6_00e7;
    let parts = made(b"\x48\x0f\xae\x23", &registers, State::new());
    assert_eq!(parts.iter().map(|part| u64::from(part.1)).sum::<u64>(), 2496 + 8192);
    assert!(parts.iter().all(|part| part.1 <= 4096));
}

#[test]
fn tiles_have_rows() {
    let mut state = State::new();
    // Tile 3 has two rows of 32 bytes.
    state.0[2432 + 16 + 6] = 32;
    state.0[2432 + 48 + 3] = 2;
    let mut registers = registers();
    registers.general[1] = 0x100;
    // tileloadd tmm3, [rbx + rcx*1]
    assert_eq!(made(b"\xc4\xe2\x7b\x4b\x1c\x0b", &registers, state), [(0x4_0000, 32, Load), (0x4_0100, 32, Load)]);
}

//! What a manifest takes at who receives it, beside its own bytes: while it is looked at, and after.

mod counting;

use counting::{Counting, counted};
use weightcast::fuzzing::{layout, manifest_of};
use weightcast_plan::{DType, Layout, LayoutBuilder, Part};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Entries of the made-up ones. What they take grows with their number, up to 2^21.
const ENTRIES: u64 = 1 << 17;

/// Bytes for each byte of a manifest: at the most, and in the end.
const MOST: usize = 5;
const KEPT: usize = 1;
/// And for each of its tensors and buffers, of which there are 2^18 and 2^20.
const TENSOR: usize = 48;
const BUFFER: usize = 8;
/// Whatever its size.
const CONSTANT: usize = 4 << 10;

fn check(what: &str, bytes: &[u8], (tensors, buffers): (usize, usize)) -> Option<Layout> {
    let (made, most, kept) = counted(|| layout(bytes).ok());
    let ratio = |of: usize| of as f64 / bytes.len() as f64;
    eprintln!(
        "{what}: {} bytes, at most {:.2} times, then {:.2}",
        bytes.len(),
        ratio(most),
        ratio(kept)
    );
    let parts = TENSOR * tensors + BUFFER * buffers + CONSTANT;
    assert!(most <= MOST * bytes.len() + parts, "{what}: {most} bytes at most");
    assert!(kept <= KEPT * bytes.len() + parts, "{what}: {kept} bytes kept");
    if let Some(made) = &made {
        assert_eq!(kept, made.footprint(), "{what}: what it says of itself");
    }
    made
}

/// One of eight ranks of FSDP2 that train Qwen3-30B-A3B: 18,867 tensors, a row of each cut.
fn mixture_of_experts() -> Layout {
    let mut layout = LayoutBuilder::new();
    let mut add = |name: String, shape: &[u64]| {
        let local: Vec<u64> = [&[shape[0] / 8], &shape[1..]].concat();
        let part = Part::new(name.as_str()).shape(shape.to_vec()).dim(0, 0, 8);
        layout.add(&name, DType::BF16, &local, vec![part], 0);
    };
    for layer in 0..48 {
        let at = |name: &str| format!("model.layers.{layer}.{name}.weight");
        for (name, shape) in [
            ("self_attn.q_proj", &[4096, 2048][..]),
            ("self_attn.k_proj", &[512, 2048]),
            ("self_attn.v_proj", &[512, 2048]),
            ("self_attn.o_proj", &[2048, 4096]),
            ("self_attn.q_norm", &[128]),
            ("self_attn.k_norm", &[128]),
            ("input_layernorm", &[2048]),
            ("post_attention_layernorm", &[2048]),
            ("mlp.gate", &[128, 2048]),
        ] {
            add(at(name), shape);
        }
        for expert in 0..128 {
            add(at(&format!("mlp.experts.{expert}.gate_proj")), &[768, 2048]);
            add(at(&format!("mlp.experts.{expert}.up_proj")), &[768, 2048]);
            add(at(&format!("mlp.experts.{expert}.down_proj")), &[2048, 768]);
        }
    }
    add("model.embed_tokens.weight".to_owned(), &[151_936, 2048]);
    add("model.norm.weight".to_owned(), &[2048]);
    add("lm_head.weight".to_owned(), &[151_936, 2048]);
    layout.build().unwrap()
}

#[test]
fn a_real_manifest_takes_little_more_than_its_size() {
    let made = mixture_of_experts();
    let bytes = manifest_of(&made);
    let counts = (made.tensors().len(), made.buffers().len());
    assert_eq!(counts, (18_867, 18_867));
    assert_eq!(check("mixture of experts", &bytes, counts), Some(made));
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &varint(content.len() as u64)[..], content].concat()
}

fn number(number: u8, value: u64) -> Vec<u8> {
    if value == 0 { Vec::new() } else { [vec![number << 3], varint(value)].concat() }
}

fn list(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().copied().flat_map(varint).collect()
}

fn tensor(name: &str, shape: &[u64]) -> Vec<u8> {
    let dtype = u64::from(DType::U8.code());
    field(2, &[field(1, name.as_bytes()), number(2, dtype), field(3, &list(shape))].concat())
}

/// An entry in the fewest bytes: a field that is zero says nothing.
fn entry(of: u64, offset: u64, start: &[u64], len: &[u64], strides: &[u64]) -> Vec<u8> {
    let lists = [(4, start), (5, len), (6, strides)];
    let lists = lists.map(|(at, of)| if of.is_empty() { Vec::new() } else { field(at, &list(of)) });
    field(3, &[number(1, of), number(3, offset), lists.concat()].concat())
}

#[test]
fn a_hostile_manifest_takes_a_few_times_its_size() {
    let each = |make: &dyn Fn(u64) -> Vec<u8>| (0..ENTRIES).flat_map(make).collect::<Vec<u8>>();
    let buffer = |bytes: u64| field(1, &varint(bytes));
    let bytes =
        [buffer(ENTRIES), tensor("a", &[ENTRIES]), each(&|at| entry(0, at, &[at], &[1], &[1]))];
    assert!(check("rows of one byte", &bytes.concat(), (1, 1)).is_some());

    // Every second byte each: all of them meet.
    let (rows, pitch) = (2, 2 * ENTRIES);
    let bytes = [
        buffer(rows * pitch),
        tensor("a", &[rows, ENTRIES]),
        each(&|at| entry(0, 2 * at, &[0, at], &[rows, 1], &[pitch, 1])),
    ];
    assert!(check("columns of one byte", &bytes.concat(), (1, 1)).is_some());

    // No two in one step: they are looked at one by one.
    let wide = 8 * ENTRIES;
    let bytes = [
        buffer(wide * wide),
        tensor("a", &[4, ENTRIES]),
        each(&|at| entry(0, 2 * at, &[0, at], &[4, 1], &[wide + 2 * at * ENTRIES, 1])),
    ];
    check("columns that nothing orders", &bytes.concat(), (1, 1));

    for dims in [1, 8] {
        let (none, ones) = (vec![0; dims], vec![1; dims]);
        let bytes = [buffer(0), tensor("a", &none), each(&|_| entry(0, 0, &none, &none, &ones))];
        let what = format!("nothing in {dims} dimensions");
        assert!(check(&what, &bytes.concat(), (1, 1)).is_some());
    }

    // As many tensors as may be, with names as short as may be, and all are one byte of memory.
    let digits = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
    let name = |at: u64| {
        let digit = |place: u32| digits[(at >> (6 * place)) as usize % 64] as char;
        [digit(2), digit(1), digit(0)].iter().collect::<String>()
    };
    let bytes =
        [buffer(1), each(&|at| tensor(&name(at), &[])), each(&|at| entry(at, 0, &[], &[], &[]))];
    assert!(check("scalars", &bytes.concat(), (ENTRIES as usize, 1)).is_some());

    let bytes = field(1, &vec![0; ENTRIES as usize]);
    assert!(check("buffers", &bytes, (0, ENTRIES as usize)).is_some());

    // A few bytes that say: look at two million pieces.
    let many = 1 << 20;
    let bytes = [
        buffer(8 * many * many),
        tensor("a", &[many, 2]),
        entry(0, 0, &[0, 0], &[many, 1], &[4, 1]),
        entry(0, 2, &[0, 1], &[many, 1], &[8, 1]),
    ];
    assert!(check("many pieces", &bytes.concat(), (1, 1)).is_some());
}

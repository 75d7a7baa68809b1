//! Layouts and plans between them, out of small numbers; and plans that are said to be stored.

use arbitrary::{Result, Unstructured};
use weightcast_fleet::{Cluster, LayoutFile};
use weightcast_plan::stored::{PlanName, decode, encode, restore};
use weightcast_plan::{
    DType, Entry, Layout, LayoutBuilder, Part, Slice, Tensor, cells, plan as make_plan, prove,
};

/// A plan between any two layouts that are accepted is proved right by other arithmetic.
///
/// # Panics
/// If it is not.
pub fn plan(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let (Ok(Some(target)), Ok(Some(source))) = (layout(&mut input), layout(&mut input)) else {
        return;
    };
    for source in [&source, &target] {
        let cells = cells(&[&target], 0);
        if let Ok(plan) = make_plan(&target, &cells, &[source]) {
            let proof = prove(&target, &cells, &[source], &plan);
            assert!(proof.is_ok(), "{proof:?}");
        }
    }
}

/// A file of layouts that is read describes ranks, and comes back as it was when two of it are joined.
///
/// # Panics
/// If it does not.
pub fn layout_file(bytes: &[u8]) {
    let Ok(Ok(file)) = std::str::from_utf8(bytes).map(LayoutFile::parse) else {
        return;
    };
    let cluster = Cluster::of_file(&file).expect("what is read was checked");
    for rank in 0..cluster.ranks().min(8) {
        cluster.layout(rank).expect("a rank of the file");
    }
    assert!(cluster.layout(cluster.ranks()).is_err());
    let joined = LayoutFile::joined(vec![file.clone(), file]).expect("tensors are the same");
    let twice = Cluster::of_file(&joined).expect("both were checked");
    assert_eq!(twice.ranks(), 2 * cluster.ranks());
}

/// A stored plan comes back as what was stored, and is used only if it is proved right.
///
/// # Panics
/// If another plan has the same bytes, or one is believed that can't be proved.
pub fn stored_plan(bytes: &[u8]) {
    let (target, source) = (half(1, 1), [half(0, 0), half(0, 1)]);
    let (cells, sources) = (cells(&[&target], 0), [&source[0], &source[1]]);
    let name = PlanName::new(&target, &cells, source.iter().map(|layout| layout.digest().0));
    // Of itself no input has the right name and checksum.
    let mut sealed = encode(&Default::default(), &name);
    sealed.truncate(40);
    sealed.extend(bytes);
    sealed.extend(&blake3::hash(&sealed).as_bytes()[..16]);
    for bytes in [bytes, &sealed] {
        if let Ok(plan) = decode(bytes, &name) {
            assert_eq!(encode(&plan, &name), bytes);
        }
        if let Ok(plan) = restore(bytes, &name, &target, &cells, &sources) {
            let proof = prove(&target, &cells, &sources, &plan);
            assert!(proof.is_ok(), "{proof:?}");
        }
    }
}

/// What the decoder of stored plans is first given: the records of the plan that it asks for.
pub fn stored_plan_seed() -> Vec<u8> {
    let (target, source) = (half(1, 1), [half(0, 0), half(0, 1)]);
    let cells = cells(&[&target], 0);
    let plan = make_plan(&target, &cells, &[&source[0], &source[1]]).expect("all is held");
    let name = PlanName { target: [0; 16], sources: [0; 16] };
    let stored = encode(&plan, &name);
    stored[40..stored.len() - 16].to_vec()
}

/// Half of a matrix, by rows or by columns, under two names: tied weights.
fn half(dim: usize, index: u64) -> Layout {
    let part = |name: &str| Part::new(name).shape([6, 8]).dim(dim, index, 2);
    let mut shape = [6, 8];
    shape[dim] /= 2;
    let mut builder = LayoutBuilder::new();
    builder.add("w", DType::BF16, &shape, vec![part("embed")], 0).also(vec![part("head")], 0);
    builder.build().expect("a small layout")
}

/// Two tensors of any small shape, a few entries of any small numbers.
fn layout(input: &mut Unstructured<'_>) -> Result<Option<Layout>> {
    let mut tensors = Vec::new();
    for name in ["a", "b"] {
        let dtype = [DType::U8, DType::BF16, DType::F4, DType::F32][usize::from(byte(input)? % 4)];
        let dims = byte(input)? % 4;
        let shape = (0..dims).map(|_| small(input, 9)).collect::<Result<Vec<_>>>()?;
        let Ok(tensor) = Tensor::new(name, dtype, shape) else { return Ok(None) };
        tensors.push(tensor);
    }
    let buffers = vec![small(input, 255)?, small(input, 64)?];
    let count = byte(input)? % 5;
    let entries = (0..count).map(|_| entry(input, &tensors)).collect::<Result<Vec<_>>>()?;
    Ok(Layout::new(buffers, tensors, entries).ok())
}

fn entry(input: &mut Unstructured<'_>, tensors: &[Tensor]) -> Result<Entry> {
    let tensor = u32::from(byte(input)? % 3);
    let dims = tensors.get(tensor as usize).map_or(1, |tensor| tensor.shape().len());
    let mut numbers = |most| (0..dims).map(|_| small(input, most)).collect::<Result<Vec<_>>>();
    let slice = Slice { start: numbers(5)?, len: numbers(9)? };
    let strides = numbers(40)?;
    Ok(Entry {
        tensor,
        slice,
        buffer: u32::from(byte(input)? % 3),
        offset: small(input, 90)?,
        strides,
    })
}

fn byte(input: &mut Unstructured<'_>) -> Result<u8> {
    input.arbitrary()
}

/// Mostly small; one in 32 is anything.
fn small(input: &mut Unstructured<'_>, most: u8) -> Result<u64> {
    match byte(input)? {
        number @ 0..248 => Ok(u64::from(number) % (u64::from(most) + 1)),
        _ => input.arbitrary(),
    }
}

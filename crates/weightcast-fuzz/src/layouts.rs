//! Layouts and plans between them, out of small numbers.

use arbitrary::{Result, Unstructured};
use weightcast_plan::{DType, Entry, Layout, Slice, Tensor, cells, plan as make_plan, prove};

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

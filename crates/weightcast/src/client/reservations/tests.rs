//! Who may register what while others hold it. Every test has memory of its own.

use weightcast_plan::{DType, LayoutBuilder, Part};

use super::*;

const BYTES: usize = 64;

fn memory(name: &str, region: &Region) -> ReservedMemory {
    let mut builder = LayoutBuilder::new();
    let shape = [region.len() as u64];
    builder.add(name, DType::U8, &shape, vec![Part::new(name).shape(shape)], 0);
    ReservedMemory::new(&builder.build().unwrap(), std::slice::from_ref(region))
}

fn handle(name: &str) -> Registrant {
    Registrant::new("policy", &Replica::new(name, 0, 1))
}

fn fresh() -> Region {
    Region::allocate(BYTES).unwrap()
}

#[track_caller]
fn refused<T>(reservation: Result<T, Error>, said: &[&str]) {
    let error = reservation.err().expect("it is refused").to_string();
    assert!(said.iter().all(|text| error.contains(text)), "{error}");
}

#[test]
fn what_one_handle_fills_no_other_holds() {
    let (region, other) = (fresh(), fresh());
    let (one, two) = (handle("one"), handle("two"));
    let names = ["a [0:64]", "b [0:64]", "one[0/1]", "two[0/1]", "bytes 0..64"];
    let kept = one.reserve(memory("a", &region), true).unwrap();
    refused(two.reserve(memory("b", &region), true), &names);
    refused(two.reserve(memory("b", &region), false), &names);
    let apart = two.reserve(memory("b", &other), true).unwrap();
    drop(kept);
    let read = two.reserve(memory("b", &region), false).unwrap();
    refused(one.reserve(memory("a", &region), true), &names);
    drop((apart, read));
    one.reserve(memory("a", &region), true).unwrap();
}

#[test]
fn what_nobody_fills_any_number_may_hold_until_one_does() {
    let region = fresh();
    let (one, two, three) = (handle("one"), handle("two"), handle("three"));
    let first = Arc::new(one.reserve(memory("a", &region), false).unwrap());
    let second = two.reserve(memory("b", &region), false).unwrap();
    refused(Arc::clone(&first).fill(), &["one[0/1]", "two[0/1]"]);
    drop(second);
    let filling = Arc::clone(&first).fill().unwrap();
    refused(two.reserve(memory("b", &region), false), &["one[0/1]"]);
    drop(filling);
    let second = two.reserve(memory("b", &region), false).unwrap();
    three.reserve(memory("c", &region), false).unwrap();
    drop((first, second));
}

#[test]
fn a_handle_may_register_its_memory_anew() {
    let region = fresh();
    let one = handle("one");
    let before = one.reserve(memory("a", &region), true).unwrap();
    let after = one.reserve(memory("b", &region), true).unwrap();
    drop(before);
    refused(handle("two").reserve(memory("c", &region), false), &["b [0:64]"]);
    drop(after);
    handle("two").reserve(memory("c", &region), false).unwrap();
}

#[test]
fn what_is_made_when_it_is_read_lies_nowhere() {
    struct Zeros;
    impl weightcast_transport::Compute for Zeros {
        fn fill(&self, _: usize, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }
    let region = fresh();
    let regions = [Region::computed(BYTES, Arc::new(Zeros)), region.clone()];
    let mut builder = LayoutBuilder::new();
    for name in ["made", "kept"] {
        builder.add(name, DType::U8, &[64], vec![Part::new(name).shape([64])], 0);
    }
    let both = || ReservedMemory::new(&builder.build().unwrap(), &regions);
    both().check().unwrap();
    let first = handle("one").reserve(both(), false).unwrap();
    refused(handle("two").reserve(memory("a", &region), true), &["kept [0:64]"]);
    drop(first);
}

#[test]
fn filling_lasts_as_long_as_whoever_fills() {
    let region = fresh();
    let reservation = Arc::new(handle("one").reserve(memory("a", &region), false).unwrap());
    let filling = Arc::clone(&reservation).fill().unwrap();
    refused(handle("two").reserve(memory("b", &region), false), &["one[0/1]"]);
    // A call that cannot be made beside the first ends at once; that one goes on.
    drop(reservation.fill().unwrap());
    refused(handle("two").reserve(memory("b", &region), false), &["one[0/1]"]);
    drop(filling);
    handle("two").reserve(memory("b", &region), false).unwrap();
}

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

/// One registration, by the rule: memory that is filled belongs to one handle alone.
struct HeldMemory {
    handle: usize,
    regions: u64,
    filled: bool,
    reservation: Arc<Reservation>,
    guards: Vec<FillGuard>,
}

#[test]
fn random_handles_hold_what_the_rule_lets_them() {
    const REGIONS: usize = 6;
    let (mut refusals, mut granted, mut fills) = (0, 0, 0);
    for seed in 0..60_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % below
        };
        // The last has no bytes, and is never in anybody's way.
        let regions: Vec<Region> = (0..REGIONS)
            .map(|number| Region::allocate(if number + 1 < REGIONS { BYTES } else { 0 }).unwrap())
            .collect();
        let matters = (1 << (REGIONS - 1)) - 1;
        let handles = ["one", "two", "three"].map(handle);
        let mut held: Vec<HeldMemory> = Vec::new();
        for _ in 0..80 {
            let (of, handle) = (draw(1 << REGIONS), draw(3) as usize);
            let meets = |other: &HeldMemory, of: u64| other.regions & of & matters != 0;
            let at = draw(held.len().max(1) as u64) as usize;
            match draw(6) {
                0..3 => {
                    let mut order: Vec<usize> = (0..REGIONS).filter(|r| of >> r & 1 == 1).collect();
                    order.sort_by_key(|_| draw(100));
                    let mut builder = LayoutBuilder::new();
                    for region in &order {
                        let (name, bytes) = (format!("r{region}"), regions[*region].len() as u64);
                        let part = Part::new(&name).shape([bytes]);
                        builder.add(&name, DType::U8, &[bytes], vec![part], 0);
                    }
                    let chosen: Vec<Region> = order.iter().map(|r| regions[*r].clone()).collect();
                    let memory = ReservedMemory::new(&builder.build().unwrap(), &chosen);
                    memory.check().unwrap();
                    let filled = draw(2) == 0;
                    let refused = held.iter().any(|other| {
                        let alone = filled || other.filled || !other.guards.is_empty();
                        other.handle != handle && meets(other, of) && alone
                    });
                    let reserved = handles[handle].reserve(memory, filled);
                    assert_eq!(reserved.is_err(), refused, "seed {seed}");
                    refusals += usize::from(refused);
                    if let Ok(reservation) = reserved {
                        granted += 1;
                        let reservation = Arc::new(reservation);
                        held.push(HeldMemory {
                            handle,
                            regions: of,
                            filled,
                            reservation,
                            guards: vec![],
                        });
                    }
                }
                3 if !held.is_empty() => {
                    let own = &held[at];
                    let refused = !own.filled
                        && held.iter().any(|o| o.handle != own.handle && meets(o, own.regions));
                    let guard = Arc::clone(&own.reservation).fill();
                    assert_eq!(guard.is_err(), refused, "seed {seed}");
                    fills += usize::from(guard.is_ok());
                    held[at].guards.extend(guard);
                }
                4 if !held.is_empty() => drop(held[at].guards.pop()),
                _ if !held.is_empty() => drop(held.swap_remove(at)),
                _ => {}
            }
        }
    }
    assert!(refusals > 300 && granted > 300 && fills > 100, "{refusals} {granted} {fills}");
}

#[test]
fn memory_within_which_a_buffer_lies_twice_is_refused() {
    let region = fresh();
    let mut builder = LayoutBuilder::new();
    for name in ["a", "b"] {
        builder.add(name, DType::U8, &[64], vec![Part::new(name).shape([64])], 0);
    }
    let layout = builder.build().unwrap();
    let twice = ReservedMemory::new(&layout, &[region.clone(), region.clone()]);
    assert!(matches!(twice.check(), Err(LayoutError::Overlap(_))));
    ReservedMemory::new(&layout, &[region, fresh()]).check().unwrap();
}

//! From a plan to bytes.

use crate::plan::Plan;

use super::form::{MAGIC, check};
use super::name::PlanName;
use super::record::AsNumbers;
use super::varint::{put, zigzag};

/// The plan of this name as bytes, in the form that the [module](super) describes. Equal plans give
/// equal bytes.
pub fn encode(plan: &Plan, name: &PlanName) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(name.target);
    out.extend(name.sources);
    put(&mut out, plan.codec.number());
    records(&mut out, &plan.copies);
    records(&mut out, &plan.echoes);
    let check = check(&out);
    out.extend(check);
    out
}

fn records<const K: usize, R: AsNumbers<K>>(out: &mut Vec<u8>, records: &[R]) {
    put(out, records.len() as u64);
    let mut last = [0; K];
    for record in records {
        let now = record.numbers();
        let differences: [u64; K] =
            std::array::from_fn(|at| now[at].wrapping_sub(R::forecast(at, &now, &last)));
        let differ = differences.iter().filter(|&&difference| difference != 0);
        let bit = |at: usize| u64::from(differences[at] != 0) << at;
        put(out, (0..K).map(bit).sum());
        differ.for_each(|&difference| put(out, zigzag(difference)));
        last = now;
    }
}

//! From bytes to a plan, whoever wrote them.

use crate::codec::Codec;
use crate::limits::MAX_COPIES;
use crate::plan::Plan;

use super::error::StoredError;
use super::form::{CHECK, MAGIC, check};
use super::name::PlanName;
use super::record::AsNumbers;
use super::varint::{Reader, unzigzag};

/// Bytes before the first record's count.
const HEADER: usize = MAGIC.len() + 16 + 16;

/// The plan of this name that [`encode`](super::encode) made these bytes of. Whether it is one between
/// any layouts is not looked at: that is what [`restore`](super::restore) does.
///
/// # Errors
/// Every byte that `encode` would have written otherwise, or not at all.
pub fn decode(bytes: &[u8], name: &PlanName) -> Result<Plan, StoredError> {
    let foreign = StoredError::Foreign { bytes: bytes.len() };
    let (magic, _) = bytes.split_first_chunk::<8>().ok_or(foreign.clone())?;
    if magic[..7] != MAGIC[..7] {
        return Err(foreign);
    }
    if magic[7] != MAGIC[7] {
        return Err(StoredError::Version { found: magic[7] });
    }
    let (body, sum) = bytes.split_last_chunk::<CHECK>().ok_or(foreign.clone())?;
    let (header, _) = body.split_first_chunk::<HEADER>().ok_or(foreign)?;
    if *sum != check(body) {
        return Err(StoredError::Checksum);
    }
    let half = |at: usize| std::array::from_fn(|byte| header[at + byte]);
    let found = PlanName { target: half(8), sources: half(24) };
    if found != *name {
        return Err(StoredError::OtherLayouts { found, wanted: *name });
    }
    let mut reader = Reader::new(body, HEADER);
    let number = reader.take()?;
    let codec = Codec::of_number(number).ok_or(StoredError::Codec { number })?;
    let plan = Plan { copies: records(&mut reader)?, echoes: records(&mut reader)?, codec };
    match reader.left() {
        0 => Ok(plan),
        bytes => Err(StoredError::Trailing { bytes }),
    }
}

fn records<const K: usize, R: AsNumbers<K>>(
    reader: &mut Reader<'_>,
) -> Result<Vec<R>, StoredError> {
    let count = reader.take()?;
    // A record takes a byte at least.
    if count > reader.left().min(MAX_COPIES) as u64 {
        return Err(StoredError::Count { what: R::WHAT, count });
    }
    let mut records = Vec::with_capacity(count as usize);
    let mut last = [0; K];
    for number in 0..count {
        let none = StoredError::Record { what: R::WHAT, number };
        let differ = reader.take()?;
        if differ >> K != 0 {
            return Err(none);
        }
        let mut now = [0; K];
        for at in 0..K {
            now[at] = R::forecast(at, &now, &last);
            if differ >> at & 1 == 1 {
                let difference = unzigzag(reader.take()?);
                if difference == 0 {
                    return Err(none);
                }
                now[at] = now[at].wrapping_add(difference);
            }
        }
        records.push(R::of(&now).ok_or(none)?);
        last = now;
    }
    Ok(records)
}

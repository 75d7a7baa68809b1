//! What one request may cost, counted before anything is done for it.

use crate::base::error::RequestRefusal;
use crate::base::limits::{MAX_DIGEST_BYTES, MAX_DIGEST_ROWS, MAX_READ_BYTES, MAX_READ_ROWS};
use crate::memory::region::Region;
use crate::piece::copy::end;
use crate::piece::extent::{Extent, PlacedExtent};

/// Bytes and runs of one request.
#[derive(Clone, Copy)]
struct RequestBounds {
    bytes: u64,
    rows: u64,
}

/// Checks what is to be sent, or waited for: how many bytes it is.
pub(crate) fn of_read(regions: &[Region], extents: &[Extent]) -> Result<u64, RequestRefusal> {
    let bounds = RequestBounds { bytes: MAX_READ_BYTES, rows: MAX_READ_ROWS };
    check(regions, extents.iter(), bounds)
}

/// Checks what is to be written: the bytes are those of the extents.
pub(crate) fn of_write(
    regions: &[Region],
    extents: &[Extent],
    bytes: &[u8],
) -> Result<(), RequestRefusal> {
    let equal = of_read(regions, extents)? == bytes.len() as u64;
    if equal { Ok(()) } else { Err(RequestRefusal::OutOfRange) }
}

/// Checks what is to be digested.
pub(crate) fn of_digest(
    regions: &[Region],
    extents: &[PlacedExtent],
) -> Result<u64, RequestRefusal> {
    for PlacedExtent { extent, position, position_pitch } in extents {
        let end = end(*position, extent.row_bytes, extent.rows, *position_pitch);
        end.ok_or(RequestRefusal::OutOfRange)?;
    }
    let bounds = RequestBounds { bytes: MAX_DIGEST_BYTES, rows: MAX_DIGEST_ROWS };
    check(regions, extents.iter().map(|placed| &placed.extent), bounds)
}

/// Checks that the extents lie in their regions and hold no more than allowed.
fn check<'a>(
    regions: &[Region],
    extents: impl Iterator<Item = &'a Extent>,
    most: RequestBounds,
) -> Result<u64, RequestRefusal> {
    let (mut bytes, mut rows) = (0_u64, 0_u64);
    let add = |sum: u64, more: u64, most| {
        sum.checked_add(more).filter(|sum| *sum <= most).ok_or(RequestRefusal::TooMuch)
    };
    for extent in extents {
        let region = regions.get(extent.region as usize).ok_or(RequestRefusal::OutOfRange)?;
        let end = end(extent.offset, extent.row_bytes, extent.rows, extent.pitch);
        if end.is_none_or(|end| end > region.len() as u64) {
            return Err(RequestRefusal::OutOfRange);
        }
        let count = extent.count();
        rows = add(rows, count, most.rows)?;
        let more = extent.row_bytes.checked_mul(count).ok_or(RequestRefusal::TooMuch)?;
        bytes = add(bytes, more, most.bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(row_bytes: u64, rows: u64, pitch: u64) -> Extent {
        Extent { region: 0, offset: 0, row_bytes, rows, pitch }
    }

    fn read(extent: Extent) -> Result<u64, RequestRefusal> {
        of_read(&[Region::allocate(1 << 20).unwrap()], &[extent])
    }

    fn digest(extent: Extent, position: u64, position_pitch: u64) -> Result<u64, RequestRefusal> {
        let placed = PlacedExtent { extent, position, position_pitch };
        of_digest(&[Region::allocate(1 << 20).unwrap()], &[placed])
    }

    #[test]
    fn runs_and_bytes_are_bounded_before_any_is_touched() {
        assert_eq!(read(extent(1, MAX_READ_ROWS, 0)), Ok(MAX_READ_ROWS));
        assert_eq!(read(extent(1, MAX_READ_ROWS + 1, 0)), Err(RequestRefusal::TooMuch));
        assert_eq!(digest(extent(1, MAX_DIGEST_ROWS, 0), 0, 0), Ok(MAX_DIGEST_ROWS));
        assert_eq!(digest(extent(1, MAX_DIGEST_ROWS + 1, 0), 0, 0), Err(RequestRefusal::TooMuch));
        assert_eq!(read(extent(1 << 20, 64, 0)), Ok(MAX_READ_BYTES));
        assert_eq!(read(extent(1 << 20, 65, 0)), Err(RequestRefusal::TooMuch));
        assert_eq!(digest(extent(1 << 20, 1025, 0), 0, 0), Err(RequestRefusal::TooMuch));
        assert_eq!(read(extent(1, u64::MAX, 0)), Err(RequestRefusal::TooMuch));
        assert_eq!(read(extent(2, 2, (1 << 20) - 1)), Err(RequestRefusal::OutOfRange));
        assert_eq!(digest(extent(2, 2, 0), u64::MAX - 1, 0), Err(RequestRefusal::OutOfRange));
    }

    #[test]
    fn runs_without_bytes_are_none() {
        let empty = extent(0, u64::MAX, u64::MAX);
        assert_eq!((read(empty), empty.runs().count()), (Ok(0), 0));
        assert_eq!(digest(empty, u64::MAX, u64::MAX), Ok(0));
        assert_eq!(extent(3, 2, 5).runs().collect::<Vec<_>>(), [0, 5]);
    }

    /// Of several extents all count together, and each lies in its own region.
    #[test]
    fn extents_of_a_request_are_added_up() {
        let regions = [10, 30].map(|len| Region::allocate(len).unwrap());
        let of = |region, offset, row_bytes, rows, pitch| Extent {
            region,
            offset,
            row_bytes,
            rows,
            pitch,
        };
        assert_eq!(of_read(&regions, &[]), Ok(0));
        let fits = [of(0, 0, 5, 2, 5), of(1, 3, 7, 3, 10), of(1, 30, 0, 9, 1)];
        assert_eq!(of_read(&regions, &fits), Ok(31));
        for bad in [of(0, 1, 5, 2, 5), of(1, 4, 7, 3, 10), of(1, 31, 0, 0, 0), of(2, 0, 0, 0, 0)] {
            assert_eq!(
                of_read(&regions, &[fits[0], bad]),
                Err(RequestRefusal::OutOfRange),
                "{bad:?}"
            );
        }
        let half = of(1, 0, 1, MAX_READ_ROWS / 2, 0);
        assert_eq!(of_read(&regions, &[half, half]), Ok(MAX_READ_ROWS));
        assert_eq!(of_read(&regions, &[half, half, fits[2]]), Ok(MAX_READ_ROWS));
        assert_eq!(
            of_read(&regions, &[half, half, of(0, 0, 1, 1, 0)]),
            Err(RequestRefusal::TooMuch)
        );
        let large = [Region::allocate(1 << 20).unwrap()];
        let most = of(0, 0, 1 << 20, 64, 0);
        assert_eq!(of_read(&large, &[most]), Ok(MAX_READ_BYTES));
        assert_eq!(of_read(&large, &[most, of(0, 0, 1, 1, 0)]), Err(RequestRefusal::TooMuch));
        let placed = |extent, position| PlacedExtent { extent, position, position_pitch: 9 };
        let all = [placed(fits[0], 0), placed(fits[1], u64::MAX - 18 - 7)];
        assert_eq!(of_digest(&regions, &all), Ok(31));
        let beyond = [all[0], placed(fits[1], u64::MAX - 18 - 6)];
        assert_eq!(of_digest(&regions, &beyond), Err(RequestRefusal::OutOfRange));
        assert_eq!(digest(extent(1 << 20, 1024, 0), 0, 0), Ok(MAX_DIGEST_BYTES));
    }
}

//! Copies past the cache: the fastest way for a CPU to move much memory, and what it moves does not
//! push out what others work on.

/// Copies with stores that pass the cache by, where the CPU has them.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`; they do not overlap.
pub(crate) unsafe fn stream_copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2; the caller's ranges.
        return unsafe { stream_copy_avx2(from, to, len) };
    }
    // SAFETY: the caller's ranges.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Stores of this thread that passed the cache by are in order with others from here on: with the one that tells
/// another thread of the bytes. A copy of many ranges has one such border, behind the last: each waits for memory.
pub(crate) fn order_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: each x86-64 has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}

/// # Safety
/// As [`stream_copy`], and the CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream_copy_avx2(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::*;
    // Miri knows no stores past the cache, and no order of such.
    #[cfg(miri)]
    use std::arch::x86_64::_mm256_store_si256 as _mm256_stream_si256;
    #[cfg(miri)]
    fn _mm_sfence() {}
    let head = to.align_offset(32).min(len);
    let lines = (len - head) / 128 * 128;
    // SAFETY: head + lines <= len; stores are aligned to 32 behind the head.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for at in (head..head + lines).step_by(128) {
            let load = |i: usize| _mm256_loadu_si256(from.add(at + 32 * i).cast());
            let vectors = [load(0), load(1), load(2), load(3)];
            for (i, vector) in vectors.into_iter().enumerate() {
                _mm256_stream_si256(to.add(at + 32 * i).cast(), vector);
            }
        }
        _mm_sfence();
        let done = head + lines;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_and_none_beside() {
        const ROOM: usize = 1_200;
        let source: Vec<u8> = (0..ROOM).map(|i| (i % 255) as u8 + 1).collect();
        let lens =
            (0..70).chain([95, 96, 97, 127, 128, 129, 159, 160, 255, 256, 257, 300, 640, 1_000]);
        for len in lens {
            for (from, to) in (0..34).flat_map(|to| [(0, to), (1, to), (32, to), (63, to)]) {
                let mut target = vec![0_u8; ROOM];
                // SAFETY: both ranges lie in vectors that are longer.
                unsafe { stream_copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
                assert!(target[to..to + len] == source[from..from + len], "{from} {to} {len}");
                let mut beside = target[..to].iter().chain(&target[to + len..]);
                assert!(beside.all(|byte| *byte == 0), "{from} {to} {len}");
            }
        }
    }
}

//! Ids of a message's events: BLAKE2b (RFC 7693) without a key, of 16 bytes, as `headrace_common.record.event` names a frame.

#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use blake2b_simd::many::{hash_many, HashManyJob};

const BLOCK: usize = 128;
const SIZE: u64 = 16;

const START: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Which word of a block comes where, in each round.
const ORDER: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

/// Calls a function for each of these numbers.
macro_rules! each {
    ($function:ident: $($number:literal)*; $arguments:tt) => { $($function::<$number>$arguments;)* };
}

/// An id: the first 24 of a digest's 32 hex digits, behind `d.`, and the last eight as a number.
pub type Id = ([u8; 26], u32);

/// The id of a digest.
fn written(digest: &[u8]) -> Id {
    let mut prefix = *b"d.000000000000000000000000";
    for (pair, byte) in prefix[2..].chunks_exact_mut(2).zip(digest) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    (prefix, digest.last_chunk().map_or(0, |last| u32::from_be_bytes(*last)))
}

/// The ids of texts: what each hashes, whole. With AVX2 four are hashed at a time, in half the time or less.
#[cfg(target_arch = "x86_64")]
pub fn ids<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Vec<Id> {
    let mut params = blake2b_simd::Params::new();
    params.hash_length(SIZE as usize);
    let mut jobs: Vec<_> = texts.map(|text| HashManyJob::new(&params, text)).collect();
    hash_many(&mut jobs);
    jobs.iter().map(|job| written(job.to_hash().as_bytes())).collect()
}

/// The ids of texts: what each hashes, whole.
#[cfg(not(target_arch = "x86_64"))]
pub fn ids<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Vec<Id> {
    texts
        .map(|text| {
            let mut hash = Hash::default();
            hash.feed(text);
            hash.id()
        })
        .collect()
}

/// Appends a field: its length as u32, and its bytes.
pub fn field(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// A hash of what it is fed.
#[derive(Clone)]
pub struct Hash {
    state: [u64; 8],
    block: [u8; BLOCK],
    held: usize,
    fed: u64,
}

impl Default for Hash {
    fn default() -> Self {
        let mut state = START;
        state[0] ^= 0x0101_0000 | SIZE;
        Hash { state, block: [0; BLOCK], held: 0, fed: 0 }
    }
}

impl Hash {
    /// Adds `data`.
    pub fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.held == BLOCK {
                self.mix(false); // only when more comes: the last block is marked
            }
            let (now, later) = data.split_at(data.len().min(BLOCK - self.held));
            self.block[self.held..self.held + now.len()].copy_from_slice(now);
            self.held += now.len();
            self.fed += now.len() as u64;
            data = later;
        }
    }

    /// Adds a field: its length as u32, and its bytes.
    pub fn field(&mut self, data: &[u8]) {
        self.feed(&(data.len() as u32).to_be_bytes());
        self.feed(data);
    }

    /// A frame's part of its events' ids.
    pub fn prefix(self) -> [u8; 26] {
        self.id().0
    }

    fn id(mut self) -> Id {
        self.block[self.held..].fill(0);
        self.mix(true);
        let [first, second, ..] = self.state.map(u64::to_le_bytes);
        written(&[first, second].concat())
    }

    fn mix(&mut self, last: bool) {
        let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 8]));
        let words = std::array::from_fn(|index| word(&self.block[8 * index..]));
        let mut mixed = [0; 16];
        mixed[..8].copy_from_slice(&self.state);
        mixed[8..].copy_from_slice(&START);
        mixed[12] ^= self.fed;
        if last {
            mixed[14] = !mixed[14];
        }
        each!(round: 0 1 2 3 4 5 6 7 8 9 0 1; (&mut mixed, &words));
        for (index, word) in self.state.iter_mut().enumerate() {
            *word ^= mixed[index] ^ mixed[index + 8];
        }
        self.held = 0;
    }
}

/// One round, of which the compiler knows every index.
#[inline(always)]
fn round<const ROUND: usize>(mixed: &mut [u64; 16], words: &[u64; 16]) {
    each!(quarter: 0 1 2 3 4 5 6 7; (mixed, words, ORDER[ROUND]));
}

#[inline(always)]
fn quarter<const EACH: usize>(mixed: &mut [u64; 16], words: &[u64; 16], order: [usize; 16]) {
    // First the columns, then the diagonals.
    let [a, b, c, d] = [0, 1, 2, 3].map(|row| 4 * row + (EACH + EACH / 4 * row) % 4);
    let (x, y) = (words[order[2 * EACH]], words[order[2 * EACH + 1]]);
    mixed[a] = mixed[a].wrapping_add(mixed[b]).wrapping_add(x);
    mixed[d] = (mixed[d] ^ mixed[a]).rotate_right(32);
    mixed[c] = mixed[c].wrapping_add(mixed[d]);
    mixed[b] = (mixed[b] ^ mixed[c]).rotate_right(24);
    mixed[a] = mixed[a].wrapping_add(mixed[b]).wrapping_add(y);
    mixed[d] = (mixed[d] ^ mixed[a]).rotate_right(16);
    mixed[c] = mixed[c].wrapping_add(mixed[d]);
    mixed[b] = (mixed[b] ^ mixed[c]).rotate_right(63);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8], size: usize) -> Id {
        let mut hash = Hash::default();
        text.chunks(size).for_each(|piece| hash.feed(piece));
        hash.id()
    }

    #[test]
    fn known_hashes() {
        // As Python's hashlib.blake2b(…, digest_size=16) has them.
        for (text, expected) in [
            (vec![], "d.cae66941d9efbd404e4d8875"),
            (b"abc".to_vec(), "d.cf4ab791c62b8d2b2109c902"),
            (vec![7; 128], "d.756a48ce14169f40cd99326c"),
            (vec![7; 129], "d.5523fec1519f1d315e4fed94"),
            (vec![7; 256], "d.545f8551ebe83f9d35663f30"),
            (vec![7; 1000], "d.c632487abef982df157573f2"),
        ] {
            assert_eq!(std::str::from_utf8(&of(&text, 1000).0), Ok(expected), "{}", text.len());
        }
        assert_eq!(of(b"abc", 9).1, 0x7528_7816); // cf4ab791c62b8d2b2109c90275287816
    }

    #[test]
    fn neither_pieces_matter_nor_what_is_hashed_beside() {
        let all: Vec<u8> = (0..=255).cycle().take(1400).collect();
        let texts: Vec<&[u8]> = (0..700).map(|size| &all[size..][..size * 7 % 700]).collect();
        for (id, text) in ids(texts.iter().copied()).iter().zip(&texts) {
            for size in [1, 3, 127, 128, 129, 255, 700] {
                assert_eq!(of(text, size), *id, "{size}");
            }
        }
    }
}

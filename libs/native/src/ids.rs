//! Ids of a message's events: BLAKE2b (RFC 7693) without a key, of 16 bytes, as `headrace_common.record.event` names a frame.

#![forbid(unsafe_code)]

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

/// Which four words are mixed with each other: the columns, then the diagonals.
const MIXED: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

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

    /// The first 24 of the digest's 32 hex digits, behind `d.`: a frame's part of an id.
    pub fn prefix(self) -> [u8; 26] {
        self.id().0
    }

    /// An id: what `prefix` is, and the last eight hex digits as a number.
    pub fn id(mut self) -> ([u8; 26], u32) {
        self.block[self.held..].fill(0);
        self.mix(true);
        let mut prefix = *b"d.000000000000000000000000";
        for (pair, byte) in prefix[2..].chunks_exact_mut(2).zip(self.state.iter().flat_map(|word| word.to_le_bytes())) {
            pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        (prefix, ((self.state[1] >> 32) as u32).swap_bytes())
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
        round::<0>(&mut mixed, &words);
        round::<1>(&mut mixed, &words);
        round::<2>(&mut mixed, &words);
        round::<3>(&mut mixed, &words);
        round::<4>(&mut mixed, &words);
        round::<5>(&mut mixed, &words);
        round::<6>(&mut mixed, &words);
        round::<7>(&mut mixed, &words);
        round::<8>(&mut mixed, &words);
        round::<9>(&mut mixed, &words);
        round::<0>(&mut mixed, &words);
        round::<1>(&mut mixed, &words);
        for (index, word) in self.state.iter_mut().enumerate() {
            *word ^= mixed[index] ^ mixed[index + 8];
        }
        self.held = 0;
    }
}

/// One round, of which the compiler knows every index.
#[inline(always)]
fn round<const ROUND: usize>(mixed: &mut [u64; 16], words: &[u64; 16]) {
    quarter::<ROUND, 0>(mixed, words);
    quarter::<ROUND, 1>(mixed, words);
    quarter::<ROUND, 2>(mixed, words);
    quarter::<ROUND, 3>(mixed, words);
    quarter::<ROUND, 4>(mixed, words);
    quarter::<ROUND, 5>(mixed, words);
    quarter::<ROUND, 6>(mixed, words);
    quarter::<ROUND, 7>(mixed, words);
}

#[inline(always)]
fn quarter<const ROUND: usize, const EACH: usize>(mixed: &mut [u64; 16], words: &[u64; 16]) {
    let [a, b, c, d] = MIXED[EACH];
    let (x, y) = (words[ORDER[ROUND][2 * EACH]], words[ORDER[ROUND][2 * EACH + 1]]);
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

    fn of(pieces: &[&[u8]]) -> String {
        let mut hash = Hash::default();
        for piece in pieces {
            hash.feed(piece);
        }
        String::from_utf8(hash.prefix().to_vec()).expect("hex")
    }

    #[test]
    fn known_hashes() {
        // As Python's hashlib.blake2b(…, digest_size=16) has them.
        for (data, expected) in [
            (vec![], "d.cae66941d9efbd404e4d8875"),
            (b"abc".to_vec(), "d.cf4ab791c62b8d2b2109c902"),
            (vec![7; 128], "d.756a48ce14169f40cd99326c"),
            (vec![7; 129], "d.5523fec1519f1d315e4fed94"),
            (vec![7; 256], "d.545f8551ebe83f9d35663f30"),
            (vec![7; 1000], "d.c632487abef982df157573f2"),
        ] {
            assert_eq!(of(&[&data]), expected, "{}", data.len());
        }
    }

    #[test]
    fn pieces_do_not_matter() {
        let data: Vec<u8> = (0..=255).cycle().take(700).collect();
        let whole = of(&[&data]);
        for size in [1, 3, 127, 128, 129, 255] {
            assert_eq!(of(&data.chunks(size).collect::<Vec<_>>()), whole, "{size}");
        }
    }

    #[test]
    fn an_id_is_the_whole_digest() {
        let mut hash = Hash::default();
        hash.feed(b"abc"); // cf4ab791c62b8d2b2109c90275287816
        assert_eq!(hash.id().1, 0x7528_7816);
    }

    #[test]
    fn a_field_has_its_length() {
        let mut hash = Hash::default();
        hash.field(b"abc");
        assert_eq!(String::from_utf8(hash.prefix().to_vec()).expect("hex"), of(&[b"\0\0\0\x03abc"]));
    }
}

//! Ids of events: the first 128 bits of a SHA-256, as `headrace_common.record.event` names a frame.

use sha2::{Digest, Sha256};

/// An id: the first 24 of its 32 hex digits, behind `d.`, and the last eight as a number.
pub type Id = ([u8; 26], u32);

/// The id of what it hashes.
pub fn id(text: &[u8]) -> Id {
    let digest = Sha256::digest(text);
    let mut prefix = *b"d.000000000000000000000000";
    for (pair, byte) in prefix[2..].chunks_exact_mut(2).zip(&digest) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    (prefix, u32::from_be_bytes([digest[12], digest[13], digest[14], digest[15]]))
}

/// Appends a field: its length as u32, and its bytes.
pub fn field(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        // As Python's hashlib.sha256 has them.
        for (text, expected) in [
            (vec![], "d.e3b0c44298fc1c149afbf4c8"),
            (b"abc".to_vec(), "d.ba7816bf8f01cfea414140de"),
            (vec![7; 1000], "d.df1329c8b6c7cf3740bbe2f8"),
        ] {
            assert_eq!(std::str::from_utf8(&id(&text).0), Ok(expected), "{}", text.len());
        }
        assert_eq!(id(b"abc").1, 0x5dae_2223); // ba7816bf8f01cfea414140de5dae2223
    }
}

//! Kafka's record, version 2 (KIP-98), as `headrace_common.record` lays it out.

/// Bytes of a J frame before its JSON; the last four are the length of that.
pub const DATA_HEADER: usize = 10;

/// Appends a zigzag varint.
pub fn varint(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest > 0x7f {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends the varint of a length.
pub fn length(out: &mut Vec<u8>, size: usize) {
    varint(out, size as i64);
}

/// Appends an event as record number `offset` of a batch. `stamp`: the record's attributes and timestamp.
pub fn lay(out: &mut Vec<u8>, event: &[u8], stamp: &[u8], offset: u32) {
    let bits = 64 - (u64::from(offset) << 1 | 1).leading_zeros() as usize;
    length(out, stamp.len() + bits.div_ceil(7) + 1 + event.len());
    out.extend_from_slice(stamp);
    varint(out, i64::from(offset));
    varint(out, -1); // no key
    out.extend_from_slice(event);
}

/// The content of a frame at the start of `data`: behind a header that ends with its length, as u32. None if it is not whole.
pub fn framed(data: &[u8], header: usize) -> Option<&[u8]> {
    let (head, rest) = data.split_at_checked(header)?;
    let size = u32::from_be_bytes(*head.last_chunk()?);
    rest.get(..usize::try_from(size).ok()?)
}

/// The ends in `data` of the whole J frames of Lumberjack from `at` on: of at most `most`, each with at most `largest` bytes of
/// JSON; and whether each has the number that follows that of the one before.
pub fn frames(data: &[u8], mut at: usize, largest: usize, most: usize) -> (Vec<usize>, bool) {
    let (mut ends, mut steady, mut expected) = (Vec::new(), true, None);
    while ends.len() < most {
        let rest = &data[at..];
        let Some(json) = framed(rest, DATA_HEADER).filter(|json| json.len() <= largest && rest.starts_with(b"2J"))
        else {
            break;
        };
        let number = u64::from(u32::from_be_bytes([rest[2], rest[3], rest[4], rest[5]]));
        steady &= expected.is_none_or(|expected| expected == number);
        expected = Some(number + 1);
        at += DATA_HEADER + json.len();
        ends.push(at);
    }
    (ends, steady)
}

/// What the events of one frame have in common, encoded.
#[derive(Clone, Copy)]
pub struct Envelope<'a> {
    /// Behind the value, up to the id, without attributes and with them.
    pub bare: &'a [u8],
    pub before_id: &'a [u8],
    /// From the id to the time.
    pub after_id: &'a [u8],
    /// The content type, and the name of the attributes.
    pub kind: &'a [u8],
    pub attributes: &'a [u8],
}

/// One event's own.
pub struct Event<'a> {
    pub value: &'a [u8],
    /// The frame's part of its id.
    pub ids: &'a [u8],
    pub index: u32,
    pub time: &'a [u8],
    /// JSON; empty if there are none.
    pub attributes: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// `pieces`: in this order.
    pub fn of([bare, before_id, after_id, kind, attributes]: [&'a [u8]; 5]) -> Self {
        Envelope { bare, before_id, after_id, kind, attributes }
    }

    /// Appends the part of a record that does not depend on its batch.
    pub fn event(&self, out: &mut Vec<u8>, event: &Event) {
        length(out, event.value.len());
        out.extend_from_slice(event.value);
        out.extend_from_slice(if event.attributes.is_empty() { self.bare } else { self.before_id });
        out.extend_from_slice(event.ids);
        for shift in (0..32).step_by(4).rev() {
            out.push(b"0123456789abcdef"[(event.index >> shift & 15) as usize]);
        }
        out.extend_from_slice(self.after_id);
        length(out, event.time.len());
        out.extend_from_slice(event.time);
        out.extend_from_slice(self.kind);
        if !event.attributes.is_empty() {
            out.extend_from_slice(self.attributes);
            length(out, event.attributes.len());
            out.extend_from_slice(event.attributes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length() {
        assert_eq!(framed(b"2J....\0\0\0\x02abc", 10), Some(&b"ab"[..]));
        for data in [&b"2J....\0\0\0\x02a"[..], b"2J....\xff\xff\xff\xffa", b"2J....\0\0\0", b""] {
            assert_eq!(framed(data, 10), None);
        }
    }

    #[test]
    fn a_record_has_its_length_and_its_place() {
        for (offset, place) in
            [(0, &[0u8][..]), (63, &[126]), (64, &[128, 1]), (8191, &[254, 127]), (8192, &[128, 128, 1])]
        {
            let mut out = Vec::new();
            lay(&mut out, b"event", b"\0\x02", offset);
            let size = 2 + place.len() + 1 + 5;
            assert_eq!(out, [&[2 * size as u8, 0, 2], place, &[1], b"event"].concat());
        }
    }

    #[test]
    fn frames_end_where_one_is_not_whole_or_another() {
        let frame = |number: u32, size: u8| {
            [b"2J", &number.to_be_bytes()[..], &[0, 0, 0, size], &[b'x'; 9][..size.into()]].concat()
        };
        let three = [frame(7, 0), frame(8, 9), frame(9, 1)].concat();
        assert_eq!(frames(&three, 0, 9, 4), (vec![10, 29, 40], true));
        assert_eq!(frames(&three, 0, 9, 2), (vec![10, 29], true));
        assert_eq!(frames(&three, 10, 9, 2), (vec![29, 40], true));
        assert_eq!(frames(&three, 0, 8, 4), (vec![10], true));
        for size in 0..three.len() {
            let whole = [10, 29].iter().filter(|end| **end <= size).count();
            assert_eq!(frames(&three[..size], 0, 9, 4).0.len(), whole, "{size}");
        }
        for (second, steady) in [(u32::MAX, false), (0, false), (5, true)] {
            let first = if steady { 4 } else { u32::MAX };
            assert_eq!(frames(&[frame(first, 0), frame(second, 0)].concat(), 0, 9, 4), (vec![10, 20], steady));
        }
        for other in [&b"1J"[..], b"2D"] {
            assert_eq!(frames(&[&frame(1, 2), other, &frame(2, 2)[2..]].concat(), 0, 9, 4), (vec![12], true));
        }
    }
}

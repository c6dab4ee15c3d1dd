//! Forward's entries as records: what `headrace_forward.entries.builder` makes of those with nothing unusual about them.
//!
//! An entry is unusual if Python would write a note on it, refuse it, or need more than one step for it. Such an entry ends the
//! work, and Python goes on from there.

use std::collections::HashSet;

use crate::json;
use crate::msgpack::{Input, Item, Odd};
use crate::record::{Envelope, Event};
use crate::time::Clock;

/// Deepest nesting that is followed: each level is a call.
pub const DEEPEST: usize = 128;

/// Keys of open maps beyond which Python decides: `MOST_KEYS` of Forward's `transcoding`.
const MOST_KEYS: usize = 1024;

/// Bytes that a value or an event seldom exceeds.
pub const USUAL: usize = 1 << 10;

/// Pairs of a map from which on its keys are looked up by their hash.
const MANY_KEYS: usize = 16;

/// What the entries of one message have in common.
pub struct Message<'a> {
    pub envelope: Envelope<'a>,
    /// JSON of its attributes; empty if there are none.
    pub attributes: &'a [u8],
    /// The frame's part of an id, and that of ids of events whose time is a whole millisecond; empty: Python makes these.
    pub ids: &'a [u8],
    pub content_ids: &'a [u8],
    /// Most bytes of value and attributes.
    pub event_bytes: usize,
    /// Deepest nesting; a record of plain values has 1.
    pub depth: usize,
}

/// Writes one entry after the other.
pub struct Writer<'a> {
    message: &'a Message<'a>,
    clock: Clock,
    value: Vec<u8>,
    time: Vec<u8>,
    keys: Vec<&'a [u8]>,
}

impl<'a> Writer<'a> {
    pub fn new(message: &'a Message<'a>) -> Self {
        Writer {
            message,
            clock: Clock::default(),
            value: Vec::with_capacity(USUAL),
            time: Vec::with_capacity(32),
            keys: Vec::new(),
        }
    }

    /// Appends the record of the entry at the start of `data` to `out`. Returns how many bytes the entry has.
    pub fn entry(&mut self, data: &'a [u8], index: u32, out: &mut Vec<u8>) -> Result<usize, Odd> {
        self.value.clear();
        self.time.clear();
        self.keys.clear();
        let mut input = Input::new(data);
        if input.item()? != Item::Array(2) {
            return Err(Odd);
        }
        let whole_millisecond = self.entry_time(&mut input)?;
        let Item::Map(pairs) = input.item()? else {
            return Err(Odd);
        };
        self.map(&mut input, pairs, 0)?;
        let message = self.message;
        let read = input.at();
        let attributes = message.attributes;
        if self.value.len() + attributes.len() > message.event_bytes || read > message.event_bytes {
            return Err(Odd);
        }
        let ids = if whole_millisecond { message.content_ids } else { message.ids };
        if ids.is_empty() {
            return Err(Odd);
        }
        message.envelope.event(out, &Event { value: &self.value, ids, index, time: &self.time, attributes });
        Ok(read)
    }

    /// Reads a time, which may have an empty map of metadata beside it.
    fn entry_time(&mut self, input: &mut Input<'a>) -> Result<bool, Odd> {
        let first = input.item()?;
        if first != Item::Array(2) {
            return self.clock.write(&mut self.time, &first);
        }
        let whole = self.clock.write(&mut self.time, &input.item()?)?;
        if input.item()? != Item::Map(0) {
            return Err(Odd);
        }
        Ok(whole)
    }

    /// `level`: how many containers are around it.
    fn value(&mut self, input: &mut Input<'a>, level: usize) -> Result<(), Odd> {
        match input.item()? {
            Item::Text(content) | Item::Bin(content) => json::text(&mut self.value, content),
            Item::Positive(number) => {
                json::digits(&mut self.value, number, 1);
                Ok(())
            }
            Item::Negative(number) => {
                self.value.push(b'-');
                json::digits(&mut self.value, number.unsigned_abs(), 1);
                Ok(())
            }
            Item::Float(number) => json::float(&mut self.value, number),
            Item::Nil => self.word(b"null"),
            Item::Bool(true) => self.word(b"true"),
            Item::Bool(false) => self.word(b"false"),
            Item::Map(pairs) => self.map(input, pairs, level),
            Item::Array(count) => self.array(input, count, level),
            Item::Ext(..) => Err(Odd),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Odd> {
        self.value.extend_from_slice(word);
        Ok(())
    }

    fn opens(&self, level: usize) -> Result<(), Odd> {
        (level < self.message.depth.min(DEEPEST)).then_some(()).ok_or(Odd)
    }

    fn array(&mut self, input: &mut Input<'a>, count: usize, level: usize) -> Result<(), Odd> {
        self.opens(level)?;
        self.value.push(b'[');
        for index in 0..count {
            if index > 0 {
                self.value.push(b',');
            }
            self.value(input, level + 1)?;
        }
        self.value.push(b']');
        Ok(())
    }

    fn map(&mut self, input: &mut Input<'a>, pairs: usize, level: usize) -> Result<(), Odd> {
        self.opens(level)?;
        let first = self.keys.len();
        let mut many = HashSet::new();
        self.value.push(b'{');
        for index in 0..pairs {
            let Item::Text(key) = input.item()? else {
                return Err(Odd);
            };
            let repeated = if pairs > MANY_KEYS { !many.insert(key) } else { self.keys[first..].contains(&key) };
            if repeated || self.keys.len() == MOST_KEYS {
                return Err(Odd);
            }
            self.keys.push(key);
            if index > 0 {
                self.value.push(b',');
            }
            json::text(&mut self.value, key)?;
            self.value.push(b':');
            self.value(input, level + 1)?;
        }
        self.keys.truncate(first);
        self.value.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope = Envelope { bare: b"<", before_id: b"<<", after_id: b">", kind: b"!", attributes: b"@" };

    fn message(attributes: &[u8]) -> Message<'_> {
        Message { envelope: ENVELOPE, attributes, ids: b"i", content_ids: b"c", event_bytes: 1000, depth: 4 }
    }

    fn written(message: &Message, data: &[u8]) -> Result<String, Odd> {
        let mut out = Vec::new();
        let read = Writer::new(message).entry(data, 0x1f, &mut out)?;
        assert_eq!(read, data.len());
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn a_plain_entry() {
        let data = b"\x92\x01\x83\xa1a\x01\xa1b\x92\xc0\xc3\xa1c\x81\xa1b\xd3\x80\0\0\0\0\0\0\0";
        let record = "l{\"a\":1,\"b\":[null,true],\"c\":{\"b\":-9223372036854775808}}";
        assert_eq!(written(&message(b""), data), Ok(format!("{record}<c0000001f>(1970-01-01T00:00:01Z!")));
    }

    #[test]
    fn a_bin_is_a_text() {
        let data = b"\x92\x92\x01\x80\x82\xa3a/~\xc4\x01x\xa1b\x91\xc4\x01y";
        let found = written(&message(b""), data).expect("ordinary");
        assert!(found.contains("{\"a/~\":\"x\",\"b\":[\"y\"]}<"), "{found}");
    }

    #[test]
    fn what_python_must_see() {
        for data in [
            &b"\x93\x01\x80\xc0"[..],                     // three elements
            b"\x92\x00\x80",                              // no time
            b"\x92\x92\x01\x81\xa1a\x01\x80",             // metadata
            b"\x92\x92\x01\xc2\x80",                      // no metadata
            b"\x92\x01\x90",                              // no map
            b"\x92\x01\x82\xa1a\x01\xa1a\x02",            // a repeated key
            b"\x92\x01\x81\x01\x01",                      // a key that is no text
            b"\x92\x01\x81\xa1\xff\x01",                  // not UTF-8
            b"\x92\x01\x81\xa1a\xc4\x01\xff",             // a bin that is not UTF-8
            b"\x92\x01\x81\xa1a\xcb\x7f\xf8\0\0\0\0\0\0", // NaN
            b"\x92\x01\x81\xa1a\xd4\x01\x01",             // an ext
            b"\x92\x01\x81\xa1a\x91\x91\x91\x90",         // too deep
            b"\x92\x01\xdf\xff\xff\xff\xff",              // announces more than there is
            b"\x92\x01\x81\xa1a",                         // half
            b"\x92\x01",
            b"\xc1",
            b"",
        ] {
            assert_eq!(written(&message(b""), data), Err(Odd), "{data:?}");
        }
        assert!(written(&message(b""), b"\x92\x01\x81\xa1a\x91\x91\x90").is_ok());
    }

    #[test]
    fn a_repeated_key_among_many() {
        let mut data = b"\x92\x01\xde\x00\x20".to_vec();
        for key in (0..31).chain([30]) {
            data.extend([0xa1, b'A' + key, 1]);
        }
        assert_eq!(written(&message(b""), &data), Err(Odd));
        let last = data.len() - 2;
        data[last] = b'z';
        assert!(written(&message(b""), &data).is_ok());
    }

    #[test]
    fn the_limit_of_an_event_counts_value_and_attributes() {
        let data = b"\x92\x01\x81\xa1a\x01";
        let mut limited = message(b"{\"chunk\":\"c\"}");
        limited.event_bytes = 7 + 13;
        assert!(written(&limited, data).is_ok());
        limited.event_bytes -= 1;
        assert_eq!(written(&limited, data), Err(Odd));
    }
}

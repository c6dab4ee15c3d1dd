//! A whole message of Forward as most small clients send it: `headrace_forward.session` makes its frame.

use crate::entries::{Message, Writer, DEEPEST, USUAL};
use crate::ids::{field, id};
use crate::json;
use crate::msgpack::{Input, Item, Odd};
use crate::record::Envelope;

/// Payloads that begin like this are compressed.
const COMPRESSED: [&[u8]; 2] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];

/// Chunks that name nothing: `NAMES_NOTHING` of Forward's `entries.ids`.
const NOTHING: [&[u8]; 3] = [b"", b"z4PhNX7vuL3xVChQ1m2ABw==", b"cf83e1357eefb8bdf1542850d66d8007"];

/// Lengths of chunks that may name the content: Python decides about ids of events whose time is a whole millisecond.
const MAY_NAME_CONTENT: [usize; 2] = [24, 32];

/// A tag, and what its messages have in common.
pub struct Known<'a> {
    /// Its element.
    pub tag: &'a [u8],
    pub envelope: Envelope<'a>,
    /// What every id hashes first: the fields of the protocol and of the tag.
    pub begun: &'a [u8],
    /// The field of the client's name, or nothing.
    pub client: &'a [u8],
}

/// What a message may have at most.
pub struct Limits {
    /// Bytes of its chunk and of its option.
    pub chunk: usize,
    pub option: usize,
    pub entries: u32,
    /// Bytes of an event's value and attributes, and deepest nesting.
    pub event_bytes: usize,
    pub depth: usize,
    /// Bytes of all its events, but for the last.
    pub total: usize,
}

/// Parts of the bytes of a message.
#[derive(Debug, PartialEq, Eq)]
struct Plain<'a> {
    /// Its entries; in Message mode the time and the record, which lack the entry's header.
    body: &'a [u8],
    is_entry: bool,
    /// The chunk, and its element.
    chunk: &'a [u8],
    reply: &'a [u8],
}

/// Takes `data` apart, if it is one message with the element `tag` and nothing else, and asks for nothing but an acknowledgement.
fn plain<'a>(data: &'a [u8], tag: &[u8], limits: &Limits) -> Result<Plain<'a>, Odd> {
    let mut input = Input::new(data);
    let Item::Array(elements @ 3..=4) = input.item()? else {
        return Err(Odd);
    };
    let start = input.at();
    input.item()?;
    let middle = input.at();
    if start != 1 || &data[start..middle] != tag {
        return Err(Odd);
    }
    let (body, is_entry) = match input.item()? {
        Item::Text(content) | Item::Bin(content) if elements == 3 => {
            if content.is_empty() || COMPRESSED.iter().any(|magic| content.starts_with(magic)) {
                return Err(Odd);
            }
            (content, false)
        }
        Item::Array(entries) if elements == 3 => {
            let first = input.at();
            for _ in 0..entries {
                skip(&mut input, 0)?;
            }
            (&data[first..input.at()], false)
        }
        Item::Ext(..) | Item::Positive(_) | Item::Float(_) if elements == 4 => {
            let record = input.at();
            if !matches!(data.get(record), Some(0x80..=0x8f | 0xde | 0xdf)) {
                return Err(Odd);
            }
            skip(&mut input, 0)?;
            (&data[middle..input.at()], true)
        }
        _ => return Err(Odd),
    };
    let (chunk, reply) = option(&mut input, data, limits)?;
    if input.at() != data.len() {
        return Err(Odd);
    }
    Ok(Plain { body, is_entry, chunk, reply })
}

/// Gives `keep` all events of a plain message, which are to be used only if it returns its chunk's element.
pub fn events<'a>(
    data: &'a [u8],
    known: &Known,
    limits: &Limits,
    mut keep: impl FnMut(&[u8]),
) -> Result<&'a [u8], Odd> {
    let found = plain(data, known.tag, limits)?;
    let mut text = Vec::with_capacity(known.begun.len() + known.client.len() + data.len());
    text.extend_from_slice(known.begun);
    field(&mut text, found.chunk);
    text.extend_from_slice(known.client);
    let body = if found.is_entry { &[b"\x92", found.body].concat() } else { found.body };
    field(&mut text, body);
    let (ids, _) = id(&text);
    let mut attributes = b"{\"chunk\":".to_vec();
    json::text(&mut attributes, found.chunk)?;
    attributes.push(b'}');
    let message = Message {
        envelope: known.envelope,
        attributes: &attributes,
        ids: &ids,
        content_ids: if MAY_NAME_CONTENT.contains(&found.chunk.len()) { b"" } else { &ids },
        event_bytes: limits.event_bytes,
        depth: limits.depth,
    };
    let mut writer = Writer::new(&message);
    let mut event = Vec::with_capacity(USUAL);
    let (mut read, mut total) = (0, 0);
    for index in 0..limits.entries {
        event.clear();
        read += writer.entry(&body[read..], index, &mut event)?;
        keep(&event);
        if read == body.len() {
            return Ok(found.reply);
        }
        total += event.len();
        if total > limits.total {
            break;
        }
    }
    Err(Odd)
}

/// Reads the option map. Returns the chunk, which names something, and its element.
fn option<'a>(input: &mut Input<'a>, data: &'a [u8], limits: &Limits) -> Result<(&'a [u8], &'a [u8]), Odd> {
    let start = input.at();
    let Item::Map(pairs @ 0..=4) = input.item()? else {
        return Err(Odd);
    };
    let (mut seen, mut found) = ([""; 4], None);
    for each in 0..pairs {
        let Item::Text(key) = input.item()? else {
            return Err(Odd);
        };
        let at = input.at();
        let value = input.item()?;
        let name = match (key, value) {
            (b"chunk", Item::Text(chunk)) if chunk.len() <= limits.chunk && !NOTHING.contains(&chunk) => {
                found = Some((chunk, &data[at..input.at()]));
                "chunk"
            }
            (b"size", Item::Positive(_)) => "size",
            (b"compressed", Item::Text(b"text")) => "compressed",
            (b"fluent_signal", Item::Positive(0)) => "fluent_signal",
            _ => return Err(Odd),
        };
        if seen.contains(&name) {
            return Err(Odd);
        }
        seen[each] = name;
    }
    if input.at() - start > limits.option {
        return Err(Odd);
    }
    found.ok_or(Odd)
}

/// Skips one object. `level`: how many containers are around it.
fn skip(input: &mut Input, level: usize) -> Result<(), Odd> {
    let inner = match input.item()? {
        Item::Array(count) => count,
        Item::Map(pairs) => pairs.checked_mul(2).ok_or(Odd)?,
        _ => return Ok(()),
    };
    if level >= DEEPEST {
        return Err(Odd);
    }
    for _ in 0..inner {
        skip(input, level + 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { chunk: 40, option: 60, entries: 3, event_bytes: 99, depth: 9, total: 999 };

    fn taken(data: &[u8]) -> Result<Plain<'_>, Odd> {
        plain(data, b"\xa1t", &LIMITS)
    }

    #[test]
    fn packed_entries() {
        for data in [
            &b"\x93\xa1t\xc4\x03\x92\x01\x80\x82\xa5chunk\xa1c\xa4size\x01"[..],
            b"\x93\xa1t\xa3\x92\x01\x80\x83\xadfluent_signal\x00\xa5chunk\xa1c\xaacompressed\xa4text",
            b"\x93\xa1t\x91\x92\x01\x80\x82\xa5chunk\xa1c\xa4size\x01",
        ] {
            let expected = Plain { body: b"\x92\x01\x80", is_entry: false, chunk: b"c", reply: b"\xa1c" };
            assert_eq!(taken(data), Ok(expected));
        }
    }

    #[test]
    fn one_entry() {
        let found = taken(b"\x94\xa1t\x01\x81\xa1a\x92\x01\x80\x81\xa5chunk\xa1c").expect("plain");
        assert_eq!((found.body, found.is_entry), (&b"\x01\x81\xa1a\x92\x01\x80"[..], true));
        assert_eq!(found.chunk, b"c");
    }

    fn made(data: &[u8], limits: &Limits) -> Result<(Vec<Vec<u8>>, Vec<u8>), Odd> {
        let envelope = Envelope { bare: b"", before_id: b"<", after_id: b">", kind: b"", attributes: b"" };
        let known = Known { tag: b"\xa1t", envelope, begun: b"\0\0\0\x01t", client: b"\0\0\0\x01n" };
        let mut made = Vec::new();
        let reply = events(data, &known, limits, |event| made.push(event.to_vec()))?.to_vec();
        Ok((made, reply))
    }

    #[test]
    fn all_events() {
        let data = b"\x93\xa1t\xa6\x92\x01\x80\x92\x02\x80\x81\xa5chunk\xa1c";
        let (made, reply) = made(data, &LIMITS).expect("plain");
        assert_eq!((made.len(), &reply[..]), (2, &b"\xa1c"[..]));
        let (ids, _) = id(b"\0\0\0\x01t\0\0\0\x01c\0\0\0\x01n\0\0\0\x06\x92\x01\x80\x92\x02\x80");
        for (index, event) in made.iter().enumerate() {
            let id = [&b"<"[..], &ids, format!("{index:08x}>").as_bytes()].concat();
            assert!(event.windows(id.len()).any(|part| part == id), "{event:?}");
            assert!(event.ends_with(b"{\"chunk\":\"c\"}"));
        }
        let single = b"\x94\xa1t\x01\x81\xa1a\x05\x81\xa5chunk\xa1c";
        let listed = b"\x93\xa1t\xa5\x92\x01\x81\xa1a\x05\x81\xa5chunk\xa1c";
        assert!(super::tests::made(single, &LIMITS).is_ok());
        assert_ne!(super::tests::made(single, &LIMITS), super::tests::made(data, &LIMITS));
        assert!(super::tests::made(&listed[..], &LIMITS).is_err()); // a byte of the entry is missing
    }

    #[test]
    fn all_events_or_none() {
        let entry = [&b"\x93\xa1t\xa3\x92\x01\x80\x81\xa5chunk\xd9"[..]].concat();
        for size in 0..50 {
            let data = [&entry[..], &[size], &vec![b'c'; usize::from(size)]].concat();
            assert_eq!(made(&data, &LIMITS).is_ok(), ![0, 24, 32].contains(&size) && size <= 40, "{size}");
        }
        let data = b"\x93\xa1t\xac\x92\x01\x80\x92\x01\x80\x92\x01\x80\x92\x01\x80\x81\xa5chunk\xa1c";
        assert_eq!(made(data, &LIMITS), Err(Odd));
        assert!(made(data, &Limits { entries: 4, ..LIMITS }).is_ok());
        assert_eq!(made(data, &Limits { entries: 4, total: 9, ..LIMITS }), Err(Odd));
    }

    #[test]
    fn a_chunk_may_name_the_content() {
        for (chunk, nanoseconds, plain) in [
            (&[b'c'; 24][..], 1_000_001_u32, true),
            (&[b'c'; 24], 1_000_000, false),
            (&[b'c'; 32], 1, true),
            (&[b'c'; 32], 0, false),
            (&[b'c'; 25], 0, true),
            (NOTHING[1], 1, false),
            (NOTHING[2], 1, false),
        ] {
            let time = nanoseconds.to_be_bytes();
            let entry = [&b"\x93\xa1t\xac\x92\xd7\0\0\0\0\x01"[..], &time, b"\x80\x81\xa5chunk\xd9"].concat();
            let data = [&entry, &[chunk.len() as u8][..], chunk].concat();
            assert_eq!(made(&data, &LIMITS).is_ok(), plain, "{chunk:?} {nanoseconds}");
        }
    }

    #[test]
    fn what_python_must_see() {
        for data in [
            &b"\x91\xa1t"[..],
            b"\x92\xa1t\xa3\x92\x01\x80", // no option
            b"\x93\xa1t\x01\x80",         // the same in Message mode
            b"\x95\xa1t\x01\x80\x80\x80",
            b"\xdc\x00\x03\xa1t\xa3\x92\x01\x80\x81\xa5chunk\xa1c", // a wide header
            b"\x93\xa1u\xa3\x92\x01\x80\x81\xa5chunk\xa1c",         // another tag
            b"\x93\xa1t\xa4\x92\x01\x80\x92\x81\xa5chunk\xa1c",     // half an entry
            b"\x93\xa1t\xa4\x92\x01\x80\x05\x81\xa5chunk\xa1c",     // something behind one
            b"\x93\xa1t\xa0\x81\xa5chunk\xa1c",                     // no entries
            b"\x93\xa1t\xa2\x1f\x8b\x81\xa5chunk\xa1c",             // gzip
            b"\x93\xa1t\xa4\x28\xb5\x2f\xfd\x81\xa5chunk\xa1c",     // zstd
            b"\x93\xa1t\x90\x81\xa5chunk\xa1c",                     // no entries in a list
            b"\x93\xa1t\x92\x92\x01\x80\x81\xa5chunk\xa1c",         // one in place of two
            b"\x94\xa1t\xc0\x80\x81\xa5chunk\xa1c",                 // no time
            b"\x94\xa1t\x01\xa1x\x81\xa5chunk\xa1c",                // no record
            b"\x94\xa1t\xa1x\x80\x81\xa5chunk\xa1c",                // an element more
            b"\x93\xa1t\xa1x\xc0",                                  // no map
            b"\x93\xa1t\xa1x\x80",                                  // no chunk
            b"\x93\xa1t\xa3\x92\x01\x80\x81\xa5chunk\xa1\xff",      // one that is not UTF-8
            b"\x93\xa1t\xa1x\x81\xa5chunk\x01",                     // one that is no text
            b"\x93\xa1t\xa1x\x82\xa5chunk\xa1a\xa5chunk\xa1b",      // two
            b"\x93\xa1t\xa1x\x82\xa5chunk\xa1a\xaacompressed\xa4gzip", // compressed
            b"\x93\xa1t\xa1x\x82\xa5chunk\xa1a\xadfluent_signal\x01", // metrics
            b"\x93\xa1t\xa1x\x82\xa5chunk\xa1a\xa8metadata\x80",    // another key
            b"\x93\xa1t\xa3\x92\x01\x80\x81\xa5chunk\xa1c\xc0",     // a byte more
            b"\x93\xa1t\xa1x\x82\xa5chunk\xa1c",                    // half
            b"",
        ] {
            assert_eq!(made(data, &LIMITS), Err(Odd), "{data:?}");
        }
    }

    #[test]
    fn the_option_has_a_limit() {
        let data = b"\x93\xa1t\xa1x\x82\xdb\0\0\0\x05chunk\xdb\0\0\0\x01c\xdb\0\0\0\x04size\xcf\0\0\0\0\0\0\0\x01";
        assert!(taken(data).is_ok());
        assert_eq!(plain(data, b"\xa1t", &Limits { option: 30, ..LIMITS }), Err(Odd));
    }

    #[test]
    fn nesting_has_a_limit() {
        for (levels, plain) in [(DEEPEST - 1, true), (DEEPEST, false), (1 << 20, false)] {
            let mut data = b"\x94\xa1t\x01\x81\xa1a".to_vec();
            data.resize(data.len() + levels, 0x91);
            data.extend_from_slice(b"\xc0\x81\xa5chunk\xa1c");
            assert_eq!(taken(&data).is_ok(), plain, "{levels}");
        }
    }
}

//! What Python calls.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::document::{courier_identity, Fields};
use crate::entries::{Message, Writer};
use crate::ids::{id, Id};
use crate::message::{self, Limits};
use crate::msgpack::Odd;
use crate::record::{self, Envelope, Event, DATA_HEADER};

/// Bytes of records after which a call returns.
const MOST_MADE: usize = 512 << 10;

/// `Envelope.pieces` of Python.
type Pieces<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a [u8], &'a [u8]);

/// Bytes of a frame's part of an id.
const IDS_LENGTH: usize = 26;

/// Turns a panic, which is a bug, into an exception that Python's code catches.
fn caught<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(PyRuntimeError::new_err("the native core panicked")))
}

/// Encodes at most `most` entries from the start of `data`, of which the first has `index` in its message.
///
/// Returns the events and how many bytes of `data` they were. Ends before what is not plain, or not whole.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn entries<'py>(
    py: Python<'py>,
    pieces: Pieces<'py>,
    attributes: &[u8],
    ids: &[u8],
    content_ids: &[u8],
    limits: (usize, usize),
    data: &[u8],
    index: u32,
    most: u32,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    caught(|| {
        assert!(ids.len() == IDS_LENGTH && content_ids.len() == IDS_LENGTH);
        let (event_bytes, depth) = limits;
        let message =
            Message { envelope: Envelope::of(pieces.into()), attributes, ids, content_ids, event_bytes, depth };
        let mut writer = Writer::new(&message);
        let made = PyList::empty(py);
        let mut record = Vec::new();
        let (mut read, mut total) = (0, 0);
        for number in 0..most {
            record.clear();
            let Ok(size) = writer.entry(&data[read..], index + number, &mut record) else {
                break;
            };
            made.append(PyBytes::new(py, &record))?;
            read += size;
            total += record.len();
            if total > MOST_MADE {
                break;
            }
        }
        Ok((made, read))
    })
}

/// Returns records of a batch, from number `offset` on, one after the other. `stamp`: their attributes and timestamp.
#[pyfunction]
fn lay<'py>(py: Python<'py>, events: &Bound<'py, PyList>, stamp: &[u8], offset: u32) -> PyResult<Bound<'py, PyBytes>> {
    caught(|| {
        let mut out = Vec::new();
        for (number, event) in (offset..).zip(events) {
            record::lay(&mut out, event.cast_exact::<PyBytes>()?.as_bytes(), stamp, number);
        }
        Ok(PyBytes::new(py, &out))
    })
}

/// A tag's element, the pieces of its envelope, what every id of it begins to hash, and the client's field, which may be empty.
type Known<'a> = (&'a [u8], Pieces<'a>, &'a [u8], &'a [u8]);

/// The events of a message, their bytes, and the element of its chunk.
type Made<'py> = (Bound<'py, PyList>, usize, Bound<'py, PyBytes>);

/// Makes the events of a plain message with the tag `known` that asks for an acknowledgement: see `message::events`.
///
/// `limits`: most bytes of its chunk, its option and an event, deepest nesting, and most entries.
#[pyfunction]
fn whole<'py>(
    py: Python<'py>,
    data: &[u8],
    known: Known<'py>,
    limits: (usize, usize, usize, usize, u32),
) -> PyResult<Option<Made<'py>>> {
    caught(|| {
        let (tag, pieces, begun, client) = known;
        let (chunk, option, event_bytes, depth, entries) = limits;
        let limits = Limits { chunk, option, entries, event_bytes, depth, total: MOST_MADE };
        let known = message::Known { tag, envelope: Envelope::of(pieces.into()), begun, client };
        let mut made = Vec::new();
        let mut total = 0;
        let keep = |event: &[u8]| {
            total += event.len();
            made.push(PyBytes::new(py, event));
        };
        match message::events(data, &known, &limits, keep) {
            Ok(reply) => Ok(Some((PyList::new(py, made)?, total, PyBytes::new(py, reply)))),
            Err(_) => Ok(None),
        }
    })
}

type Held<'py> = Bound<'py, PyBytes>;

/// What Python's `find` says of the key of an event: the pieces of its envelope, and what its id begins to hash, if it has one.
type Origin<'py> = ((Held<'py>, Held<'py>, Held<'py>, Held<'py>, Held<'py>), Option<Held<'py>>);

/// Makes events of JSON.
struct Documents<'a, 'py> {
    find: &'a Bound<'py, PyAny>,
    /// JSON of each event's attributes; empty if there are none.
    attributes: &'a [u8],
    /// The id of the first event, if that has none that is hashed.
    unique: Id,
    origin: Option<Origin<'py>>,
    made: Vec<Held<'py>>,
    identity: Vec<u8>,
    record: Vec<u8>,
    total: usize,
}

impl<'a, 'py> Documents<'a, 'py> {
    fn new(find: &'a Bound<'py, PyAny>, attributes: &'a [u8], unique: Id) -> Self {
        let (made, identity, record) = (Vec::new(), Vec::new(), Vec::new());
        Documents { find, attributes, unique, origin: None, made, identity, record, total: 0 }
    }

    /// Makes an event. Returns whether it is plain. `identity`: appends what its id hashes, from what its origin begins to hash.
    fn add(
        &mut self,
        raw: &[u8],
        fields: &Fields,
        identity: impl FnOnce(&mut Vec<u8>, Option<&[u8]>) -> Result<(), Odd>,
    ) -> PyResult<bool> {
        let py = self.find.py();
        if self.origin.is_none() || fields.moved {
            let mut key = Vec::new();
            fields.key(&mut key);
            self.origin = self.find.call1((PyBytes::new(py, &key), PyBytes::new(py, raw)))?.extract()?;
        }
        let Some(((bare, before_id, after_id, kind, named), begun)) = &self.origin else { return Ok(false) };
        self.identity.clear();
        if identity(&mut self.identity, begun.as_ref().map(|begun| begun.as_bytes())).is_err() {
            return Ok(false);
        }
        let (prefix, number) = self.unique;
        let unique = (prefix, number + self.made.len() as u32);
        let (ids, index) = if self.identity.is_empty() { unique } else { id(&self.identity) };
        let envelope = Envelope::of([bare, before_id, after_id, kind, named].map(|piece| piece.as_bytes()));
        let event = Event { value: raw, ids: &ids, index, time: fields.time(), attributes: self.attributes };
        self.record.clear();
        envelope.event(&mut self.record, &event);
        self.total += self.record.len();
        self.made.push(PyBytes::new(py, &self.record));
        Ok(true)
    }

    /// Whether so much is made that a call returns.
    fn is_full(&self) -> bool {
        self.total > MOST_MADE
    }

    fn events(self) -> PyResult<Bound<'py, PyList>> {
        PyList::new(self.find.py(), self.made)
    }
}

/// Makes the events of at most `most` of Lumberjack's J frames from the start of `data`, of which the first has `index` in its
/// run. Ends before what is not plain, or not whole.
///
/// Returns the events and how many bytes of `data` they were. `limits`: most bytes of an event, and deepest nesting.
#[pyfunction]
fn documents<'py>(
    find: Bound<'py, PyAny>,
    ids: &[u8],
    limits: (usize, usize),
    data: &[u8],
    index: u32,
    most: u32,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    caught(|| {
        let ids: [u8; IDS_LENGTH] = ids.try_into().expect("the prefix of ids");
        let (mut documents, mut fields) = (Documents::new(&find, b"", (ids, index)), Fields::of_beats(limits.1));
        let mut read = 0;
        while documents.made.len() < most as usize && !documents.is_full() {
            let Some(raw) = record::framed(&data[read..], DATA_HEADER).filter(|raw| raw.len() <= limits.0) else {
                break;
            };
            if fields.next(raw).is_err() {
                break;
            }
            let name = |out: &mut _, begun: Option<&[u8]>| begun.map_or(Ok(()), |it| fields.identity(out, it, raw));
            if !documents.add(raw, &fields, name)? {
                break;
            }
            read += DATA_HEADER + raw.len();
        }
        Ok((documents.events()?, read))
    })
}

/// Cuts J frames from `data[start..]`: see `record::frames`. Returns their ends in `data`.
#[pyfunction]
fn frames(data: &[u8], start: usize, largest: usize, most: usize) -> PyResult<(Vec<usize>, bool)> {
    caught(|| Ok(record::frames(data, start, largest, most)))
}

/// Cuts at most `most` of Courier's entries from the start of `data`, each of at most `largest` bytes. Returns them, and how many
/// bytes of `data` they were.
#[pyfunction]
fn cut<'py>(py: Python<'py>, data: &[u8], largest: usize, most: usize) -> PyResult<(Bound<'py, PyList>, usize)> {
    caught(|| {
        let (mut found, mut read) = (Vec::new(), 0);
        while found.len() < most {
            let Some(entry) = record::framed(&data[read..], 4).filter(|entry| entry.len() <= largest) else { break };
            found.push(PyBytes::new(py, entry));
            read += 4 + entry.len();
        }
        Ok((PyList::new(py, found)?, read))
    })
}

/// Makes the events of Courier's `entries[index..]` up to one that is not plain, or until they are `most` bytes.
///
/// `begun`: what names their payload is hashed; `left`: how many events it has from `index` on; `limits` as of `documents`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn payload<'py>(
    find: Bound<'py, PyAny>,
    begun: &[u8],
    attributes: &[u8],
    limits: (usize, usize),
    entries: Bound<'py, PyList>,
    index: usize,
    left: u32,
    most: usize,
) -> PyResult<Bound<'py, PyList>> {
    caught(|| {
        let held =
            (index..).take(left as usize).map_while(|number| entries.get_item(number).ok()?.cast_into_exact().ok());
        let mut read = 0;
        let is_short = |entry: &Held| {
            read += entry.as_bytes().len();
            entry.as_bytes().len() <= limits.0 && read <= most
        };
        let held: Vec<Held> = held.take_while(is_short).collect();
        let none = ([0; IDS_LENGTH], 0);
        let (mut documents, mut fields) = (Documents::new(&find, attributes, none), Fields::of_courier(limits.1));
        for (entry, left) in held.iter().zip((1..=left).rev()) {
            let raw = entry.as_bytes();
            let identity = |out: &mut Vec<u8>, _: Option<&[u8]>| courier_identity(out, begun, left, raw);
            if documents.is_full() || fields.next(raw).is_err() || !documents.add(raw, &fields, identity)? {
                break;
            }
        }
        documents.events()
    })
}

/// The native core.
#[pymodule]
fn headrace_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(entries, module)?)?;
    module.add_function(wrap_pyfunction!(lay, module)?)?;
    module.add_function(wrap_pyfunction!(documents, module)?)?;
    module.add_function(wrap_pyfunction!(payload, module)?)?;
    module.add_function(wrap_pyfunction!(frames, module)?)?;
    module.add_function(wrap_pyfunction!(cut, module)?)?;
    module.add_function(wrap_pyfunction!(whole, module)?)
}

//! What Python calls.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::entries::{Message, Writer};
use crate::message as taken;
use crate::record::{self, Envelope};

/// Bytes of records after which a call returns.
const MOST_MADE: usize = 512 << 10;

/// Bytes of a frame's part of an id.
const IDS_LENGTH: usize = 26;

/// The pieces of `Envelope.pieces`.
type Pieces<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a [u8], &'a [u8]);

/// Turns a panic, which is a bug, into an exception that Python's code catches.
fn caught<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(PyRuntimeError::new_err("the native core panicked")))
}

/// Encodes at most `most` entries from the start of `data`, of which the first has `index` in its message.
///
/// Returns the events and how many bytes of `data` they were. Ends before what is not plain, or not whole.
#[pyfunction]
#[pyo3(signature = (pieces, attributes, ids, content_ids, limits, data, index, most))]
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
        let (bare, before_id, after_id, kind, named) = pieces;
        let (event_bytes, depth) = limits;
        let envelope = Envelope { bare, before_id, after_id, kind, attributes: named };
        let message = Message { envelope, attributes, ids, content_ids, event_bytes, depth };
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

/// Makes records of a batch, from number `offset` on, of `events[start..]`: as many as make at most `room` bytes.
///
/// Returns their bytes and the index of the first event that is left: one that does not fit, or is none. `stamp`: their attributes
/// and timestamp.
#[pyfunction]
fn lay<'py>(
    py: Python<'py>,
    events: &Bound<'py, PyList>,
    start: usize,
    stamp: &[u8],
    offset: u32,
    room: usize,
) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    caught(|| {
        let mut out = Vec::new();
        let mut index = start;
        for number in offset..u32::MAX {
            let Ok(event) = events.get_item(index) else { break };
            let Ok(event) = event.cast_exact::<PyBytes>() else { break };
            if out.len() > MOST_MADE || !record::lay(&mut out, event.as_bytes(), stamp, number, room) {
                break;
            }
            index += 1;
        }
        Ok((PyBytes::new(py, &out), index))
    })
}

/// The tag's element, the entries, the chunk and its element of a plain message: see `message::plain`. None if it is not.
type Parts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>);

/// Takes a message apart. `limits`: most bytes of its tag, its chunk and its option.
#[pyfunction]
fn message<'py>(py: Python<'py>, data: &[u8], limits: (usize, usize, usize)) -> PyResult<Option<Parts<'py>>> {
    caught(|| {
        let (tag, chunk, option) = limits;
        let Ok(found) = taken::plain(data, &taken::Limits { tag, chunk, option }) else {
            return Ok(None);
        };
        let body = if found.is_entry { [b"\x92", found.body].concat() } else { found.body.to_vec() };
        let bytes = |content: &[u8]| PyBytes::new(py, content);
        Ok(Some((bytes(found.tag), bytes(&body), found.chunk.map(bytes), bytes(found.reply))))
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
        let (tag, (bare, before_id, after_id, kind, named), begun, client) = known;
        let envelope = Envelope { bare, before_id, after_id, kind, attributes: named };
        let (chunk, option, event_bytes, depth, entries) = limits;
        let limits = taken::Limits { tag: tag.len(), chunk, option };
        let most = taken::Most { entries, event_bytes, depth, total: MOST_MADE };
        let mut made = Vec::new();
        let mut total = 0;
        let keep = |event: &[u8]| {
            total += event.len();
            made.push(PyBytes::new(py, event));
        };
        match taken::events(data, &taken::Known { tag, envelope, begun, client }, &limits, &most, keep) {
            Ok(reply) => Ok(Some((PyList::new(py, made)?, total, PyBytes::new(py, reply)))),
            Err(_) => Ok(None),
        }
    })
}

/// The native core.
#[pymodule]
fn headrace_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(entries, module)?)?;
    module.add_function(wrap_pyfunction!(lay, module)?)?;
    module.add_function(wrap_pyfunction!(message, module)?)?;
    module.add_function(wrap_pyfunction!(whole, module)?)
}

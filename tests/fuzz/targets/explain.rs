//! Any bytes as a text to explain, in pieces of any size: what is said does not depend on the pieces, and can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::explain::{Explanation, TextReader, explain};
use rdmaprep::logs::nccl::Room;
use rdmaprep::report::{Style, write_log_explanation};

fn read(bytes: &[u8], size: usize, room: &Room, timed_out: bool) -> Explanation {
    let mut reader = TextReader::within(room.clone());
    bytes.chunks(size).for_each(|piece| reader.push(piece));
    let (text, _) = reader.finish("log");
    let is_known = !text.kinds().is_empty();
    let explanation = explain(vec![text], timed_out);
    assert_eq!(explanation.inputs[0].kinds.is_empty(), !is_known);
    explanation
}

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let timed_out = first & 1 == 1;
    // Little room for a part of the inputs.
    let room = if first & 2 == 2 { Room::new(16 * 1024) } else { Room::ALL };
    let whole = read(bytes, bytes.len().max(1), &room, timed_out);
    assert_eq!(whole, read(bytes, 1 + usize::from(*first), &room, timed_out));
    for cause in &whole.causes {
        assert!(!cause.evidence.is_empty() && !cause.remedy.is_empty(), "{cause:?}");
    }
    serde_json::to_string(&whole).unwrap();
    let mut text = Vec::new();
    write_log_explanation(&mut text, &whole, Style { colour: false }).unwrap();
    assert!(text.iter().all(|byte| *byte == b'\n' || *byte >= b' '), "a control character gets to the terminal");
});

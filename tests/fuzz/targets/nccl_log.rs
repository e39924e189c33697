//! An NCCL log of any bytes, in pieces of any size: facts that do not depend on the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::logs::nccl::{Hints, Interleaved, Observed, RankLog, explain_nccl_log, judge_rdma};

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let read = |size: usize| {
        let mut stream = Interleaved::default();
        bytes.chunks(size).for_each(|piece| stream.push(piece));
        stream.finish().evidence()
    };
    let evidence = read(1 + usize::from(*first));
    assert_eq!(evidence, read(bytes.len().max(1)));
    for timed_out in [false, true] {
        let hints = Hints { timed_out, ..Hints::default() };
        for cause in explain_nccl_log(&evidence, &hints) {
            assert!(!cause.evidence.is_empty(), "{cause:?}");
        }
    }
    assert!(!judge_rdma(&evidence, &Observed::default()).reasons.is_empty());
    let mut rank = RankLog::default();
    bytes.split(|byte| *byte == b'\n').for_each(|line| rank.push_line(line));
    let _ = rank.evidence();
});

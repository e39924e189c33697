//! The stand-ins of `tests/standin`: ranks really exchange and add up data, and each fault does what its description says.
//!
//! `tests/standin/all_reduce.c` is what uses them here; it works as the agent does.

use crate::support::readelf;
use crate::support::skipping;
use crate::support::standin;

use skipping::say_skipped;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const WITHOUT: [&str; 3] = ["cuInit", "ncclCommInitRank", "ibv_open_device"];

fn built() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(|| standin::build("standin", &WITHOUT)) {
        Ok(folder) => Some(folder),
        Err(reason) => {
            say_skipped(reason);
            None
        }
    }
}

fn ptx() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/agent/kernels/all_reduce.ptx")
}

/// What the ranks said, in no order.
struct Said(Vec<String>);

impl Said {
    #[track_caller]
    fn says(&self, text: &str) -> &Said {
        assert!(self.0.iter().any(|line| line.contains(text)), "{text:?} is not in:\n{}", self.0.join("\n"));
        self
    }

    #[track_caller]
    fn never_says(&self, text: &str) -> &Said {
        assert!(!self.0.iter().any(|line| line.contains(text)), "{text:?} is in:\n{}", self.0.join("\n"));
        self
    }

    fn count(&self, text: &str) -> usize {
        self.0.iter().filter(|line| line.contains(text)).count()
    }
}

/// One run of the program in so many ranks, with these variables.
fn all_reduce(folder: &Path, ranks: usize, counts: &str, variables: &[(&str, &str)]) -> Said {
    run(&mut command(folder, ranks, counts, variables))
}

fn command(folder: &Path, ranks: usize, counts: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(built().unwrap().join("all_reduce"));
    command.arg(folder).arg(ptx()).arg(ranks.to_string()).arg(counts);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NCCL_") || name.starts_with("CUDA_")) {
        command.env_remove(name);
    }
    // libnccl opens the libcuda that is there already; without this a fault that keeps it away would find another.
    command.env("LD_LIBRARY_PATH", folder).envs(variables.iter().copied());
    command
}

fn run(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    Said(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn sums_are_right() {
    let Some(folder) = built() else { return };
    // 20 ranks: more than contribute to one element; the last count is of more than one chunk.
    for (ranks, counts) in [(1, "1,5000"), (2, "2,1000,600000"), (8, "1,1000"), (16, "1,3000"), (20, "100")] {
        let said = all_reduce(folder, ranks, counts, &[]);
        let rows = ranks * counts.split(',').count() * 3 * 2;
        assert_eq!(said.count("wrong 0 first -1"), rows, "{}", said.0.join("\n"));
        assert_eq!(said.count(" finished"), ranks);
        assert_eq!(said.0.len(), rows + ranks, "{}", said.0.join("\n"));
    }
}

/// The data as `src/agent/kernels/all_reduce.cu` describes it, worked out here once more.
mod data {
    pub fn mix(seed: u64, index: u64) -> u64 {
        let mut x = index.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed);
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
        x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// What `rank` contributes to an element.
    pub fn sent(seed: u64, index: u64, rank: u64, ranks: u64, largest: i64) -> i64 {
        let element = mix(seed, index);
        let slot = (rank + ranks - (element >> 32) % ranks) % ranks;
        if slot < ranks.min(16) { (mix(element, slot) % (2 * largest as u64 + 1)) as i64 - largest } else { 0 }
    }
}

/// The integer that the bits of an element stand for.
fn integer(data_type: &str, bytes: &[u8]) -> i64 {
    match data_type {
        "float" => f32::from_le_bytes(bytes.try_into().unwrap()) as i64,
        "bfloat16" => f32::from_bits(u32::from(u16::from_le_bytes(bytes.try_into().unwrap())) << 16) as i64,
        _ => {
            let bits = u16::from_le_bytes(bytes.try_into().unwrap());
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let size = if exponent == 0 { 0.0 } else { (1.0 + fraction / 1024.0) * f64::from(exponent - 15).exp2() };
            (if bits & 0x8000 != 0 { -size } else { size }) as i64
        }
    }
}

#[test]
fn what_the_ranks_send_and_get_is_as_described() {
    let Some(folder) = built() else { return };
    for ranks in [3_u64, 18] {
        let directory = tempfile::tempdir().unwrap();
        let count = 777_u64;
        // As the program makes it of the count, out of place.
        let seed = 0x0123_4567 + count * 2;
        let said = run(command(folder, ranks as usize, "777", &[]).arg(directory.path()));
        assert_eq!(said.count(" finished"), ranks as usize, "{}", said.0.join("\n"));
        for (data_type, size, largest) in [("float", 4, 524_287), ("half", 2, 127), ("bfloat16", 2, 15)] {
            let read = |suffix: &str| {
                let bytes = std::fs::read(directory.path().join(format!("{data_type}.{suffix}"))).unwrap();
                bytes.chunks(size).map(|bytes| integer(data_type, bytes)).collect::<Vec<i64>>()
            };
            let mut sum = vec![0; count as usize];
            for rank in 0..ranks {
                let wanted = (0..count).map(|index| data::sent(seed, index, rank, ranks, largest)).collect::<Vec<_>>();
                assert_eq!(read(&rank.to_string()), wanted, "{data_type}, rank {rank}");
                sum.iter_mut().zip(wanted).for_each(|(sum, one)| *sum += one);
            }
            assert!(sum.iter().any(|sum| *sum != 0));
            assert_eq!(read("sum"), sum, "{data_type}");
        }
    }
}

#[test]
fn calls_fail_as_asked() {
    let Some(folder) = built() else { return };
    let fails = |variables: &[(&str, &str)], text: &str| {
        all_reduce(folder, 2, "10", variables).says(text);
    };
    fails(&[("STANDIN_FAIL", "cuInit:803")], "failed cuInit 803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
    fails(&[("STANDIN_GPUS", "0")], "rank 1 failed cuInit 100 CUDA_ERROR_NO_DEVICE");
    fails(&[("CUDA_VISIBLE_DEVICES", "5")], "rank 1 failed cuInit 100 CUDA_ERROR_NO_DEVICE");
    fails(&[("STANDIN_GPU_MEMORY", "16")], "failed cuMemAlloc_v2 2 CUDA_ERROR_OUT_OF_MEMORY");
    fails(
        &[("STANDIN_FAIL", "cuModuleLoadData:222")],
        "failed cuModuleLoadData 222 CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    );
    fails(&[("STANDIN_FAIL", "ncclGetUniqueId:2")], "rank 0 failed ncclGetUniqueId 2 unhandled system error");
    fails(&[("STANDIN_FAIL", "ncclAllReduce:3")], "failed ncclAllReduce 3 internal error");
    fails(&[("STANDIN_FAIL", "stream:700"), ("STANDIN_RANK", "1")], "700 CUDA_ERROR_ILLEGAL_ADDRESS");
    // Without GPUs or host ids of their own, both ranks are on one GPU.
    fails(&[("NCCL_HOSTID", "same")], "failed ncclCommInitRank 5 invalid usage");

    // The second call of one rank.
    let third = [("STANDIN_FAIL", "ncclAllReduce:1@2"), ("STANDIN_RANK", "1"), ("ALL_REDUCE_DEADLINE_MS", "4000")];
    all_reduce(folder, 2, "10", &third)
        .says("rank 1 float 10 out-of-place wrong 0")
        .says("rank 1 failed ncclAllReduce 1 unhandled cuda error")
        .never_says("rank 0 failed")
        .says("rank 0 async 6");
}

#[test]
fn a_process_knows_its_rank_before_nccl_does() {
    let Some(folder) = built() else { return };
    let fault = [("STANDIN_FAIL", "cuInit:999"), ("STANDIN_RANK", "0,2"), ("STANDIN_THIS_RANK", "")];
    let with = |log: &str| {
        let mut variables = fault.to_vec();
        variables.push(("NCCL_DEBUG_FILE", log));
        all_reduce(folder, 1, "10", &variables)
    };
    with("/nowhere/nccl-2.log").says("failed cuInit 999 CUDA_ERROR_UNKNOWN");
    with("/nowhere/nccl-1.log").says("finished");
    // Of no rank at all.
    with("/nowhere/nccl.%p").says("finished");
}

#[test]
fn a_rank_that_is_gone_fails_the_others() {
    let Some(folder) = built() else { return };
    for how in ["SEGV", "ABRT", "KILL"] {
        let crash = format!("ncclAllReduce:{how}@3");
        let said = all_reduce(folder, 3, "10", &[("STANDIN_CRASH", &crash), ("STANDIN_RANK", "2")]);
        let signal = match how {
            "SEGV" => 11,
            "ABRT" => 6,
            _ => 9,
        };
        said.says(&format!("rank 2 killed by signal {signal} in ncclAllReduce"));
        said.says("rank 0 async 6 in half 10 out-of-place").says("rank 1 async 6 in half 10 out-of-place");
    }
    let exit =
        [("STANDIN_CRASH", "ncclCommInitRank:EXIT=3"), ("STANDIN_RANK", "1"), ("ALL_REDUCE_DEADLINE_MS", "1500")];
    // Who never came is waited for, as NCCL does.
    all_reduce(folder, 2, "10", &exit)
        .says("rank 1 exited with 3 in ncclCommInitRank")
        .says("rank 0 stuck in ncclCommIn");
}

#[test]
fn calls_and_streams_hang_as_asked() {
    let Some(folder) = built() else { return };
    let hang = |what: &str, rank: &str| {
        let variables = [("STANDIN_HANG", what), ("STANDIN_RANK", rank), ("ALL_REDUCE_DEADLINE_MS", "1500")];
        all_reduce(folder, 2, "10", &variables)
    };
    hang("cuInit", "0").says("rank 0 stuck in cuInit").says("rank 1 stuck in bootstrap");
    hang("ncclCommInitRank", "1").says("rank 1 stuck in ncclCommInitRank").says("rank 0 stuck in ncclCommInitRank");
    hang("ncclCommDestroy", "1").says("rank 0 finished").says("rank 1 stuck in ncclCommDestroy");
    // The third all-reduce of rank 1 does not end, so neither does that of rank 0; what was before is right.
    hang("stream@3", "1")
        .says("rank 0 float 10 in-place wrong 0")
        .says("rank 0 stuck in stream")
        .says("rank 1 stuck in stream")
        .never_says("half");
}

#[test]
fn an_asynchronous_error_is_told_and_an_abort_ends_the_operation() {
    let Some(folder) = built() else { return };
    let variables = [("STANDIN_ASYNC", "2@2"), ("STANDIN_HANG", "stream@1"), ("STANDIN_RANK", "1")];
    all_reduce(folder, 2, "10", &variables)
        .says("rank 1 async 2 in float 10 out-of-place")
        .says("rank 0 async 6 in float 10 out-of-place")
        .never_says("stuck");
}

#[test]
fn one_wrong_element_is_found_where_it_was_planted() {
    let Some(folder) = built() else { return };
    let planted = "element=5,bytes=2000,placement=in-place,type=half";
    let said = all_reduce(folder, 2, "10,1000", &[("STANDIN_WRONG", planted), ("STANDIN_RANK", "1")]);
    said.says("rank 1 half 1000 in-place wrong 1 first 5");
    assert_eq!(said.count(" wrong 0 first -1"), 2 * 2 * 3 * 2 - 1, "{}", said.0.join("\n"));

    // All of them, wherever.
    let said = all_reduce(folder, 2, "10", &[("STANDIN_WRONG", "element=9")]);
    assert_eq!(said.count(" wrong 1 first 9"), 2 * 3 * 2, "{}", said.0.join("\n"));
}

#[test]
fn memory_is_eaten_and_time_is_taken_as_asked() {
    let Some(folder) = built() else { return };
    let peak = |variables: &[(&str, &str)]| -> u64 {
        let said = all_reduce(folder, 1, "10", variables);
        let line = said.0.iter().find_map(|line| line.strip_prefix("rank 0 finished, at most "));
        line.unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(peak(&[]) < 64);
    assert!(peak(&[("STANDIN_EAT_MIB", "ncclAllReduce:64@2")]) >= 64);
    let start = Instant::now();
    all_reduce(folder, 2, "10", &[("STANDIN_SLOW_US", "50000"), ("STANDIN_RANK", "1")]).says("rank 0 finished");
    // Six all-reduces.
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

#[test]
fn a_library_without_a_symbol() {
    let Some(folder) = built() else { return };
    for symbol in ["cuInit", "ncclCommInitRank"] {
        // The rest of them beside it.
        let directory = tempfile::tempdir().unwrap();
        for library in ["libcuda.so.1", "libnccl.so.2"] {
            let variant = folder.join("without").join(symbol).join(library);
            let file = if variant.exists() { variant } else { folder.join(library) };
            std::fs::copy(file, directory.path().join(library)).unwrap();
        }
        all_reduce(directory.path(), 1, "10", &[]).says("failed dlsym").says(&format!("undefined symbol: {symbol}"));
    }
}

#[test]
fn they_load_where_the_real_ones_would() {
    let Some(folder) = built() else { return };
    for soname in ["libcuda.so.1", "libnccl.so.2", "libibverbs.so.1"] {
        let wanted = readelf::wanted(&folder.join(soname));
        assert_eq!(wanted.soname.as_deref(), Some(soname));
        let libc =
            |name: &String| ["libc.", "libpthread.", "libdl.", "ld-linux"].iter().any(|libc| name.starts_with(libc));
        assert!(wanted.libraries.iter().all(libc), "{soname}: {:?}", wanted.libraries);
        assert!(wanted.newest_glibc() <= (2, 17), "{soname}: {:?}", wanted.versions);
    }
    let verbs = std::fs::read(folder.join("libibverbs.so.1")).unwrap();
    assert!(verbs.windows(11).any(|text| text == b"IBVERBS_1.1"));
}

#[test]
fn rdma_devices_are_those_of_the_environment() {
    let Some(folder) = built() else { return };
    let list = |folder: &Path, variables: &[(&str, &str)]| {
        run(Command::new(built().unwrap().join("all_reduce")).arg(folder).arg("verbs").envs(variables.iter().copied()))
    };
    let said = list(folder, &[("STANDIN_VERBS", "erdma_0,erdma_1!EACCES")]);
    assert_eq!(said.0, ["rank 0 device erdma_0 opens", "rank 0 device erdma_1: Permission denied"]);
    assert!(list(folder, &[]).0.is_empty());
    list(folder, &[("STANDIN_VERBS", "!ENOSYS")]).says("rank 0 no list: Function not implemented");
    let without = folder.join("without/ibv_open_device");
    list(&without, &[("STANDIN_VERBS", "erdma_0")]).says("undefined symbol: ibv_open_device");
}

/// The log of every rank, by rank.
fn logs(folder: &Path, ranks: usize, variables: &[(&str, &str)]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let pattern = directory.path().join("nccl.%h.%p").to_str().unwrap().to_owned();
    let mut all = vec![("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_FILE", &pattern)];
    all.extend(variables);
    let said = all_reduce(folder, ranks, "10", &all);
    assert_eq!(said.count(" finished"), ranks, "{}", said.0.join("\n"));
    let mut logs: Vec<String> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(!name.contains('%') && name.rsplit('.').next().unwrap().parse::<u32>().is_ok(), "{name}");
            std::fs::read_to_string(path).unwrap()
        })
        .collect();
    logs.sort_by_key(|log| {
        let after = log.split_once(" rank ").unwrap_or_else(|| panic!("no rank in:\n{log}")).1;
        after.split(' ').next().unwrap().parse::<u32>().unwrap()
    });
    logs
}

#[test]
fn logs_name_the_transport() {
    let Some(folder) = built() else { return };
    let own_gpus = ("STANDIN_GPUS", "2");
    let ib = ("STANDIN_VERBS", "erdma_0,erdma_1!EACCES");
    let no_local = [("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")];
    for (variables, channel, network) in [
        (vec![own_gpus, ib], "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Using network IB"),
        (vec![own_gpus, no_local[0]], "Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct", "Using network Socket"),
        (vec![own_gpus, no_local[0], no_local[1]], "0[0] -> 1[1] [send] via NET/Socket/0", "NET/IB : No device found."),
        (vec![own_gpus, ib, no_local[0], no_local[1]], "1[1] -> 0[0] [receive] via NET/IB/0", "[0]erdma_0:1/RoCE [RO]"),
        (vec![], "0[0] -> 1[0] [send] via NET/Socket/0", "Using network Socket"),
        (vec![("STANDIN_NET", "ib-gdr")], "0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", "Using network IB"),
        (vec![("STANDIN_TRANSPORT", "shm")], "0[0] -> 1[0] via SHM/direct/direct", "Using network Socket"),
        (vec![ib, ("NCCL_IB_DISABLE", "1")], "0[0] -> 1[0] [send] via NET/Socket/0", "Using network Socket"),
    ] {
        let logs = logs(folder, 2, &variables);
        assert_eq!(logs.len(), 2);
        for text in
            [channel, network, " NCCL INFO NCCL version 2.28.9+cuda13.0", " Init COMPLETE", "Connected all rings"]
        {
            assert!(logs[0].contains(text), "{variables:?}: {text:?} is not in:\n{}", logs[0]);
        }
    }
    let old = logs(folder, 1, &[("STANDIN_NCCL_VERSION", "21805"), ("STANDIN_CUDA_VERSION", "11080")]);
    assert!(old[0].contains("NCCL version 2.18.5+cuda11.8"), "{}", old[0]);
}

//! Whether every rank did all that was asked; where not, every way to fail told apart.

use super::nccl::{is_not_of_image, say_ranks, version_of_rank};
use super::{Judged, RunSubject, container, count, cuda, say_line};
use crate::checks::Outcome;
use crate::checks::image::consumers::CRASHES_ON_ERDMA;
use crate::diagnosis::{Cause, CauseId, Fault};
use crate::facts::run::{AgentEnding, Ending, Failure, Phase, RankFailure, RunFacts};
use crate::units::Elapsed;
use std::time::Duration;

/// Warnings shown of a rank that failed; the JSON form has all of them.
const WARNINGS_SHOWN: usize = 4;
/// Last lines of a rank's own output that are shown.
const OUTPUT_SHOWN: usize = 3;
const SIGSEGV: i32 = 11;
const SIGKILL: i32 = 9;
/// `ncclRemoteError` (nccl.h): another rank failed first.
const REMOTE_ERROR: i32 = 6;

/// A failure in words.
pub fn say_failure(failure: &Failure) -> String {
    match failure {
        Failure::LibraryMissing { library, detail } => format!("{library} cannot be opened: {detail}"),
        Failure::SymbolMissing { library, symbol } => format!("{library} has no {symbol}"),
        Failure::StubLibrary { path } => format!("{path} is a stub"),
        Failure::Cuda { call, code, name, text } => format!("{call}: {name} ({code}): {text}"),
        Failure::Nccl { call, code, text, last_error } => {
            format!("{call}: {text} ({code}){}", said_last(last_error))
        }
        Failure::NcclAsync { code, text, last_error } => {
            format!("NCCL reported while an operation ran: {text} ({code}){}", said_last(last_error))
        }
        Failure::Signal { signal, name } => format!("ended by signal {signal} ({name})"),
        Failure::OutOfMemory { limit_bytes: Some(limit) } => {
            format!("killed for memory, of which {} are allowed", crate::units::Bytes(*limit))
        }
        Failure::OutOfMemory { limit_bytes: None } => "killed for memory".to_owned(),
        Failure::Exit { code } => format!("ended with exit code {code} without a message"),
        Failure::Silent { after_ms, behind, last_nccl_line } => {
            let waited_for = if *behind { "; the others wait for it" } else { "" };
            let last = match last_nccl_line {
                Some(line) => format!("; NCCL's last line: {line}"),
                None => "; NCCL logged nothing".to_owned(),
            };
            format!("silent for {}{waited_for}{last}", elapsed(*after_ms))
        }
        Failure::Other { detail } => detail.clone(),
    }
}

fn said_last(last_error: &str) -> String {
    if last_error.trim().is_empty() { String::new() } else { format!(": {}", last_error.trim()) }
}

fn elapsed(milliseconds: u64) -> Elapsed {
    Elapsed(Duration::from_millis(milliseconds))
}

fn say(failed: &RankFailure) -> String {
    format!("rank {} in {}: {}", failed.rank, failed.phase, say_failure(&failed.failure))
}

/// How far a failure is from the root of the trouble: what is lower explains what is higher.
fn distance(failure: &Failure) -> u32 {
    match failure {
        Failure::OutOfMemory { .. } => 0,
        Failure::Signal { .. } => 1,
        Failure::LibraryMissing { .. } | Failure::SymbolMissing { .. } | Failure::StubLibrary { .. } => 2,
        Failure::Cuda { .. } => 3,
        Failure::Nccl { code, .. } if *code != REMOTE_ERROR => 4,
        Failure::Other { .. } => 5,
        Failure::Exit { .. } => 6,
        Failure::NcclAsync { code, .. } if *code != REMOTE_ERROR => 7,
        Failure::Nccl { .. } | Failure::NcclAsync { .. } => 8,
        Failure::Silent { .. } => 9,
    }
}

/// The causes in the logs that may have ended a run, or keep it.
fn causes_of<'a>(subject: &RunSubject<'a>, first: Option<&RankFailure>) -> Vec<&'a Cause> {
    // Whoever sent a KILL, NCCL did not; nor does it have a part in what a container may use of memory.
    let is_outside = |failed: &RankFailure| {
        matches!(failed.failure, Failure::Signal { signal: SIGKILL, .. } | Failure::OutOfMemory { .. })
    };
    if first.is_some_and(is_outside) {
        return Vec::new();
    }
    // With a network the ranks went on; without any, what kept it away is the matter.
    let has_network = subject.run.evidence.as_ref().is_some_and(|evidence| !evidence.network.is_empty());
    subject.causes().filter(|cause| !has_network || cause.id.info().ends_run).collect()
}

/// The failure that explains most of the others.
pub fn first_failure(run: &RunFacts) -> Option<&RankFailure> {
    run.failures.iter().min_by_key(|failed| distance(&failed.failure))
}

pub(super) fn ranks_complete(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    subject.started()?;
    if run.ending == (Ending::Agent { ending: AgentEnding::Interrupted }) {
        return Err(Outcome::unknown("the run was interrupted"));
    }
    if let Some(first) = first_failure(run) {
        let outcome = match &first.failure {
            Failure::Silent { .. } => fell_silent(subject),
            _ => broken(subject, first),
        };
        return Ok(with_evidence(subject, outcome));
    }
    match &run.ending {
        Ending::Agent { ending: AgentEnding::Complete } => complete(run),
        Ending::Agent { ending: AgentEnding::PhaseTimeout | AgentEnding::TotalTimeout } | Ending::TotalTimeout => {
            Ok(with_evidence(subject, Outcome::fail(format!("the run's time limit passed: {}", phases(run)))))
        }
        // container-start says why.
        Ending::ContainerEnded { last_lines, .. } if container::agent_does_not_load(last_lines).is_some() => {
            Err(Outcome::unknown("the agent did not start"))
        }
        Ending::ContainerEnded { exit_code, out_of_memory, last_lines } => {
            let outcome = if *out_of_memory {
                Outcome::fail("the kernel ended the container for memory")
                    .remedy("raise the container's memory limit, or use fewer ranks")
                    .blame(Fault::Host)
            } else {
                let outcome = Outcome::fail(format!(
                    "the container ended with exit code {exit_code} before the agent was done: {}",
                    phases(run)
                ));
                // No process of the container itself can kill its first.
                match *exit_code == 128 + i64::from(SIGKILL) {
                    true => outcome.remedy("on the host: docker events and dmesg show who ended it").blame(Fault::Host),
                    false => outcome,
                }
            };
            Ok(with_evidence(subject, outcome.evidence(last_lines.iter().cloned())))
        }
        // Where no rank was started, the checks of GPUs and libraries say why.
        Ending::Agent { ending: AgentEnding::Failed } if run.ranks.is_empty() => {
            Err(Outcome::unknown("no rank was started"))
        }
        Ending::Agent { .. } => {
            Ok(with_evidence(subject, Outcome::fail(format!("the agent gave up without a reason: {}", phases(run)))))
        }
        Ending::NotStarted { .. } => Err(subject.no_word()),
    }
}

fn complete(run: &RunFacts) -> Judged {
    let expected = run.collective.sizes().len() * run.collective.data_types.len();
    if run.ranks.is_empty() {
        return Err(Outcome::unknown("the agent finished, but no rank took part"));
    }
    if run.rows.len() != expected {
        return Ok(Outcome::fail(format!("{} of {expected} sizes and types were measured", run.rows.len())));
    }
    Ok(Outcome::pass(format!(
        "{}, {expected} sizes and types, in {}",
        count(run.ranks.len(), "rank"),
        elapsed(run.time.run_ms)
    )))
}

/// `rank 0 in init, rank 1 in bootstrap`
fn phases(run: &RunFacts) -> String {
    if run.ranks.is_empty() {
        return "no rank was started".to_owned();
    }
    run.ranks.iter().map(|rank| format!("rank {} in {}", rank.rank, rank.phase)).collect::<Vec<_>>().join(", ")
}

/// Every failure, then what the logs say of it.
fn with_evidence(subject: &RunSubject<'_>, outcome: Outcome) -> Outcome {
    let run = subject.run;
    let causes = causes_of(subject, first_failure(run)).into_iter().flat_map(|cause| {
        [format!("{}: {}", cause.id, cause.summary)].into_iter().chain(cause.evidence.iter().cloned())
    });
    let warnings = run.evidence.iter().flat_map(|evidence| &evidence.warnings).take(WARNINGS_SHOWN).map(say_line);
    let printed = run.failures.iter().filter_map(|failed| run.ranks.iter().find(|rank| rank.rank == failed.rank));
    let printed = printed.flat_map(|rank| {
        let lines: Vec<&str> = rank.output.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.len().saturating_sub(OUTPUT_SHOWN);
        lines[last..].iter().map(|line| format!("rank {} printed: {line}", rank.rank)).collect::<Vec<_>>()
    });
    outcome.evidence(run.failures.iter().map(say).chain(causes).chain(warnings).chain(printed))
}

/// Ranks that did not leave their phase. Nothing but what is seen is said: a hang without a line of NCCL's has no cause.
fn fell_silent(subject: &RunSubject<'_>) -> Outcome {
    let run = subject.run;
    let ranks = |only_behind: bool| -> Vec<u32> {
        let silent = run.failures.iter().filter(|failed| match failed.failure {
            Failure::Silent { behind, .. } => behind || !only_behind,
            _ => false,
        });
        silent.map(|failed| failed.rank).collect()
    };
    let (all, behind) = (ranks(false), ranks(true));
    let shown = if behind.is_empty() { &all } else { &behind };
    let Some(first) = run.failures.iter().filter(|failed| shown.contains(&failed.rank)).min_by_key(|f| f.phase) else {
        return Outcome::fail("ranks fell silent");
    };
    let mut summary = format!("{} of {} silent in {}", say_ranks(shown), run.ranks.len().max(all.len()), first.phase);
    if let Failure::Silent { after_ms, .. } = first.failure {
        summary += &format!(" for {}", elapsed(after_ms));
    }
    if !behind.is_empty() && behind.len() < all.len() {
        let waiting: Vec<u32> = all.iter().copied().filter(|rank| !behind.contains(rank)).collect();
        let verb = if waiting.len() == 1 { "waits" } else { "wait" };
        summary += &format!("; {} {verb}", say_ranks(&waiting));
    }
    if let Some(cause) = causes_of(subject, Some(first)).first() {
        return Outcome::fail(format!("{summary}: {}", cause.summary)).remedy(cause.remedy.as_str()).blame(cause.fault);
    }
    if is_after_init(first.phase) && is_all_p2p(run) {
        return Outcome::fail(format!(
            "{summary}, after every rank was initialised, with all channels between GPUs direct"
        ))
        .remedy(
            "run again with --env NCCL_P2P_DISABLE=1; if that works, switch off PCIe ACS, and the IOMMU or its \
                 translation (iommu=pt), on the host",
        )
        .blame(Fault::Host);
    }
    Outcome::fail(format!("{summary}; the cause is unknown"))
}

fn is_after_init(phase: Phase) -> bool {
    match phase {
        Phase::Libraries | Phase::Cuda | Phase::Bootstrap | Phase::Init | Phase::Finish => false,
        Phase::Connect | Phase::Warmup | Phase::Collective { .. } | Phase::Verify { .. } => true,
    }
}

fn is_all_p2p(run: &RunFacts) -> bool {
    let transports = run.evidence.as_ref().map(|evidence| &evidence.transports);
    transports.is_some_and(|all| !all.is_empty() && all.keys().all(|name| name.starts_with("P2P")))
}

/// A rank that failed, and did not just wait.
fn broken(subject: &RunSubject<'_>, first: &RankFailure) -> Outcome {
    let run = subject.run;
    let summary = say(first);
    // What is known by its lines in the log says more than the code that NCCL returned.
    if let Some(cause) = causes_of(subject, Some(first)).first() {
        return Outcome::fail(format!("{}: {}; {summary}", cause.id, cause.summary))
            .remedy(cause.remedy.as_str())
            .blame(cause.fault);
    }
    let warned =
        subject.warned(&["driver version is insufficient", "forward compatibility", "unsupported display driver"]);
    let text = format!("{summary} {}", warned.map(|line| line.line.as_str()).unwrap_or_default());
    let code = match &first.failure {
        Failure::Cuda { code, .. } => Some(*code),
        _ => None,
    };
    if let Some(outcome) = cuda::driver_fault(subject, code, &text) {
        return outcome;
    }
    let outcome = Outcome::fail(summary);
    match &first.failure {
        Failure::OutOfMemory { .. } => {
            outcome.remedy("raise the container's memory limit, or use fewer ranks").blame(Fault::Host)
        }
        Failure::Signal { signal, .. } => by_signal(subject, first.rank, *signal, outcome),
        Failure::Cuda { code, .. } => by_cuda(*code, outcome),
        Failure::LibraryMissing { library, .. } if is_not_of_image(subject, library) => {
            outcome.remedy("see nccl-loaded").blame(Fault::Launch)
        }
        Failure::LibraryMissing { .. } | Failure::SymbolMissing { .. } | Failure::StubLibrary { .. } => {
            outcome.remedy("see cuda-library and nccl-loaded").blame(Fault::Image)
        }
        // What was asked for cannot be done in this container: no rank is to blame.
        Failure::Other { detail } if run.ranks.is_empty() => {
            Outcome::fail(format!("no rank was started: {detail}")).blame(Fault::Launch)
        }
        // Both the ranks' meeting point and NCCL's own sockets say it in these words.
        Failure::Other { detail } | Failure::Nccl { last_error: detail, .. }
            if detail.contains("Address already in use") =>
        {
            Outcome::fail(say(first)).named(CauseId::PortInUse).remedy(CauseId::PortInUse.info().remedy)
        }
        Failure::Nccl { .. } | Failure::NcclAsync { .. } | Failure::Exit { .. } | Failure::Other { .. } => {
            let outcome = match run.evidence.as_ref().is_some_and(|evidence| !evidence.warnings.is_empty()) {
                true => outcome,
                false => Outcome::fail(format!("{}; the cause is unknown", say(first))),
            };
            match log_advice(run) {
                Some(advice) => outcome.remedy(advice),
                None => outcome,
            }
        }
        Failure::Silent { .. } => outcome,
    }
}

fn by_signal(subject: &RunSubject<'_>, rank: u32, signal: i32, outcome: Outcome) -> Outcome {
    let version = subject.run.ranks.iter().find(|facts| facts.rank == rank).and_then(version_of_rank);
    match (signal, version) {
        (SIGSEGV, Some(version)) if subject.target.fabric.id == "erdma" && CRASHES_ON_ERDMA.contains(&version) => {
            outcome
                .evidence([format!("NCCL {version} is known to crash in ncclNetInit on eRDMA")])
                .remedy("install another release, such as 2.29.7, in the same way as this one: rdmaprep check of the image shows the command")
                .blame(Fault::Image)
        }
        (SIGKILL, _) => outcome.remedy("on the host: dmesg | tail shows who ended it").blame(Fault::Host),
        _ => outcome.blame(Fault::Image),
    }
}

/// Who has to act on CUDA's codes (cuda.h, CUDA 12.4, `cudaError_enum`).
fn by_cuda(code: i32, outcome: Outcome) -> Outcome {
    match code {
        // CUDA_ERROR_OUT_OF_MEMORY
        2 => outcome.remedy("on the host: nvidia-smi shows who else uses the GPU's memory").blame(Fault::Host),
        // CUDA_ERROR_DEVICE_UNAVAILABLE: exclusive mode, or a GPU that is in use.
        46 => outcome
            .remedy("on the host: nvidia-smi -c DEFAULT, or end the process that holds the GPU")
            .blame(Fault::Host),
        // CUDA_ERROR_NO_BINARY_FOR_GPU
        209 => outcome.remedy("use an NCCL built for this generation of GPUs").blame(Fault::Image),
        // CUDA_ERROR_ECC_UNCORRECTABLE and CUDA_ERROR_NVLINK_UNCORRECTABLE
        214 | 220 => outcome
            .remedy("on the host: nvidia-smi -q, and dmesg | grep -i xid; the GPU needs a reset")
            .blame(Fault::Host),
        // CUDA_ERROR_SYSTEM_NOT_READY
        802 => outcome.remedy("on the host: systemctl start nvidia-fabricmanager").blame(Fault::Host),
        _ => outcome.remedy("on the host: dmesg | grep -i -e nvrm -e xid"),
    }
}

/// How to get more output from NCCL; `None` if it already logs everything.
fn log_advice(run: &RunFacts) -> Option<String> {
    let variables = &run.environment.as_ref()?.variables;
    let level = variables.get("NCCL_DEBUG").map(|level| level.to_ascii_uppercase());
    if !matches!(level.as_deref(), Some("INFO" | "TRACE")) {
        return Some("run again with --env NCCL_DEBUG=INFO".to_owned());
    }
    if variables.contains_key("NCCL_DEBUG_SUBSYS") {
        return Some("run again with --env NCCL_DEBUG_SUBSYS=ALL".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status::*;
    use crate::checks::run::testing::*;
    use crate::checks::run::{RunOptions, RunSubject};
    use crate::diagnosis::Fault::*;
    use crate::facts::run::Placement;

    fn nccl(code: i32, last_error: &str) -> Failure {
        Failure::Nccl {
            call: "ncclCommInitRank".into(),
            code,
            text: "unhandled system error".into(),
            last_error: last_error.into(),
        }
    }

    #[test]
    fn every_way_to_fail_is_told_apart() {
        let signal = |signal, name: &str| Failure::Signal { signal, name: name.into() };
        let cuda = |code| Failure::Cuda { call: "cuMemAlloc".into(), code, name: "E".into(), text: "t".into() };
        for (failure, blame, words) in [
            (signal(11, "SIGSEGV"), Some(Image), ["signal 11 (SIGSEGV)", "rank 1 in connect"]),
            (signal(9, "SIGKILL"), Some(Host), ["SIGKILL", "dmesg"]),
            (Failure::OutOfMemory { limit_bytes: Some(1 << 30) }, Some(Host), ["1.1 GB are allowed", "memory limit"]),
            (cuda(2), Some(Host), ["cuMemAlloc", "nvidia-smi"]),
            (cuda(209), Some(Image), ["E (209)", "generation"]),
            (cuda(700), None, ["E (700)", "dmesg"]),
            (nccl(2, "socket: connection refused"), None, ["unhandled system error (2): socket", "unknown"]),
            (
                Failure::NcclAsync { code: 6, text: "remote process exited".into(), last_error: String::new() },
                None,
                ["while an operation ran", "remote process exited"],
            ),
            (Failure::Exit { code: 3 }, None, ["exit code 3 without a message", "unknown"]),
            (Failure::Other { detail: "something else".into() }, None, ["something else", "unknown"]),
            (
                Failure::LibraryMissing { library: "libnccl.so.2".into(), detail: "d".into() },
                Some(Image),
                ["libnccl.so.2 cannot be opened", "see cuda-library and nccl-loaded"],
            ),
        ] {
            expect(&found(&failed(1, Phase::Connect, failure), "ranks-complete"), Fail, blame, &words);
        }
    }

    #[test]
    fn what_came_first_explains_the_rest() {
        let mut run = silent(&[(0, false)], Phase::Connect, Some("last"));
        let failure = Failure::Signal { signal: 11, name: "SIGSEGV".into() };
        run.failures.push(RankFailure { rank: 1, phase: Phase::Connect, failure });
        let finding = found(&run, "ranks-complete");
        assert!(finding.summary.starts_with("rank 1 in connect: ended by signal 11"), "{finding:#?}");
        assert!(finding.evidence.iter().any(|line| line.contains("rank 0 in connect: silent")), "{finding:#?}");
    }

    #[test]
    fn a_release_that_crashes_is_named() {
        let mut run = failed(0, Phase::Init, Failure::Signal { signal: 11, name: "SIGSEGV".into() });
        run.ranks[0].nccl_version_code = Some(22809);
        expect(&found(&run, "ranks-complete"), Fail, Some(Image), &["NCCL 2.28.9 is known to crash"]);
    }

    #[test]
    fn endings_without_a_failure() {
        let mut run = good_run();
        expect(&found(&run, "ranks-complete"), Pass, None, &["2 ranks, 3 sizes"]);
        run.rows.pop();
        expect(&found(&run, "ranks-complete"), Fail, None, &["2 of 3"]);
        run.ending = Ending::TotalTimeout;
        run.ranks[1].phase = Phase::Warmup;
        expect(&found(&run, "ranks-complete"), Fail, None, &["rank 1 in warmup"]);
        run.ending = Ending::Agent { ending: AgentEnding::Interrupted };
        expect(&found(&run, "ranks-complete"), Unknown, None, &["interrupted"]);
        run.ending = Ending::Agent { ending: AgentEnding::Failed };
        expect(&found(&run, "ranks-complete"), Fail, None, &["without a reason"]);
        run.ending = Ending::ContainerEnded { exit_code: 137, out_of_memory: true, last_lines: vec!["x".into()] };
        expect(&found(&run, "ranks-complete"), Fail, Some(Host), &["for memory"]);
        run.ending = Ending::ContainerEnded { exit_code: 137, out_of_memory: false, last_lines: Vec::new() };
        expect(&found(&run, "ranks-complete"), Fail, Some(Host), &["exit code 137", "docker events"]);
        run.ending = Ending::ContainerEnded { exit_code: 1, out_of_memory: false, last_lines: vec!["last".into()] };
        expect(&found(&run, "ranks-complete"), Fail, None, &["exit code 1", "last"]);
        run.ending = Ending::Agent { ending: AgentEnding::Complete };
        run.ranks.clear();
        expect(&found(&run, "ranks-complete"), Unknown, None, &["no rank took part"]);
    }

    #[test]
    fn silence_names_who_is_waited_for() {
        let phase = Phase::Collective { data_type_index: 0, size_bytes: 8, placement: Placement::InPlace };
        let run = silent(&[(0, false), (1, true)], phase, Some("NCCL INFO Connected all rings"));
        let finding = found(&run, "ranks-complete");
        let words = ["rank 1 of 2 silent in collective (8 B, in place)", "rank 0 waits", "Connected all rings"];
        expect(&finding, Fail, None, &words);
    }

    #[test]
    fn what_only_keeps_nccl_from_rdma_ends_no_rank() {
        let signal = Failure::Signal { signal: 11, name: "SIGSEGV".into() };
        let mut crashed = failed(1, Phase::Connect, signal);
        let mut hangs = silent(&[(0, false), (1, true)], Phase::Init, None);
        for run in [&mut crashed, &mut hangs] {
            let evidence = run.evidence.as_mut().unwrap();
            (evidence.network, evidence.causes) = (vec!["Socket".into()], vec![cause(CauseId::NoRdmaHardware)]);
        }
        let finding = found(&crashed, "ranks-complete");
        expect(&finding, Fail, Some(Image), &["rank 1 in connect: ended by signal 11"]);
        assert!(!finding.evidence.iter().any(|line| line.contains("no-rdma-hardware")), "{finding:#?}");
        expect(&found(&hangs, "ranks-complete"), Fail, None, &["silent in init", "the cause is unknown"]);
        // Where RDMA was the only network allowed, that is why.
        let mut run = failed(0, Phase::Init, nccl(2, ""));
        let evidence = run.evidence.as_mut().unwrap();
        (evidence.network, evidence.causes) = (Vec::new(), vec![cause(CauseId::NoRdmaHardware)]);
        expect(&found(&run, "ranks-complete"), Fail, Some(Host), &["no-rdma-hardware: what"]);
    }

    #[test]
    fn what_cannot_be_started_is_no_ranks_fault() {
        let detail = "3 GPUs were requested, but the container sees 2".to_owned();
        let mut run = failed(0, Phase::Libraries, Failure::Other { detail });
        run.ranks.clear();
        let finding = found(&run, "ranks-complete");
        expect(&finding, Fail, Some(Launch), &["no rank was started: 3 GPUs were requested"]);
    }

    #[test]
    fn a_known_cause_has_the_word() {
        let mut run = failed(0, Phase::Init, nccl(2, ""));
        run.evidence.as_mut().unwrap().causes = vec![cause(CauseId::GidUnroutable), cause(CauseId::NcclTooOldLoaded)];
        expect(&found(&run, "ranks-complete"), Fail, Some(Job), &["gid-unroutable: what", "remedy of gid-unroutable"]);
        let mut run = silent(&[(0, true)], Phase::Connect, None);
        run.evidence.as_mut().unwrap().causes = vec![cause(CauseId::AsymmetricHca)];
        expect(&found(&run, "ranks-complete"), Fail, Some(Launch), &["what asymmetric-hca means"]);
        let target = crate::targets::by_id("ecs").unwrap();
        let subject = RunSubject { run: &run, facts: None, target, options: RunOptions::default() };
        assert_eq!(super::super::check_run(&subject).len(), super::super::REGISTRY.len());
    }
    /// Seen on a host without RDMA: neither a kill nor a time limit comes from that.
    #[test]
    fn what_makes_nccl_take_tcp_ends_no_rank() {
        let known = || vec![cause(CauseId::NoRdmaHardware)];
        let killed = failed(1, Phase::Connect, Failure::Signal { signal: SIGKILL, name: "SIGKILL".into() });
        let hung = silent(&[(0, false)], Phase::Connect, None);
        for (mut run, words) in [(killed, "ended by signal 9"), (hung, "the cause is unknown")] {
            run.evidence.as_mut().unwrap().causes = known();
            run.evidence.as_mut().unwrap().transports.clear();
            let finding = found(&run, "ranks-complete");
            assert!(finding.summary.contains(words), "{finding:#?}");
            assert!(!format!("{finding:?}").contains("no-rdma-hardware"), "{finding:#?}");
        }
        // With NCCL_NET=IB it is what ends the initialisation.
        let mut run = failed(0, Phase::Init, nccl(3, "no net"));
        run.evidence.as_mut().unwrap().causes = known();
        run.evidence.as_mut().unwrap().network.clear();
        expect(&found(&run, "ranks-complete"), Fail, Some(Host), &["no-rdma-hardware"]);
    }
}

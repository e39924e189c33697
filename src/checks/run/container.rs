//! Checks of the container's start: start itself, network mode.

use super::{Judged, RunSubject};
use crate::checks::Outcome;
use crate::diagnosis::{CauseId, Fault};
use crate::facts::run::{Ending, StartFailure};

/// The essential part of an engine's message: its last line, without the prefixes of those that passed it on.
fn words(message: &str) -> String {
    message.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("(no message)").to_owned()
}

pub(super) fn container_start(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    match &run.ending {
        Ending::NotStarted { cause, message } => return not_started(subject, *cause, message),
        Ending::ContainerEnded { exit_code, out_of_memory, last_lines } if run.agent_version.is_none() => {
            return ended_at_once(*exit_code, *out_of_memory, last_lines);
        }
        Ending::TotalTimeout if run.agent_version.is_none() => {
            return Ok(Outcome::fail("the container started, but the agent reported nothing before the time limit"));
        }
        Ending::Agent { .. } | Ending::ContainerEnded { .. } | Ending::TotalTimeout => {}
    }
    let launch = &run.launch;
    let summary = format!("started; GPU access: {} ({})", launch.gpu_access, launch.gpu_access_reason);
    Ok(match launch.given_up.as_slice() {
        [] => Outcome::pass(summary),
        given_up => Outcome::warn(format!("{summary}; the engine refused part of the request"))
            .evidence(given_up.iter().cloned())
            .blame(Fault::Host),
    })
}

fn not_started(subject: &RunSubject<'_>, cause: StartFailure, message: &str) -> Judged {
    let said = words(message);
    let fail = |summary: String, blame| Outcome::fail(summary).evidence([said.clone()]).blame(blame);
    Ok(match cause {
        StartFailure::NvidiaToolkitMissing => {
            super::failed_by(&CauseId::NvidiaToolkitMissing.cause(vec![said.clone()]))
        }
        StartFailure::DriverTooOld => driver_too_old(subject, message),
        StartFailure::CdiDeviceUnknown => {
            fail("no CDI specification on the host names the requested device".to_owned(), Fault::Host)
                .remedy("on the host: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
        }
        StartFailure::DeviceMissing => {
            fail("the host lacks some of the devices or directories to be passed in".to_owned(), Fault::Host)
                .remedy("on the host: ls -l /dev/infiniband /dev/nvidia*, and load the driver of whatever is missing")
        }
        StartFailure::NoLoader => match entrypoint_of(message) {
            Some(program) => fail(format!("the image's entrypoint cannot be started: {program}"), Fault::Image)
                .remedy("fix ENTRYPOINT in the image, or omit --keep-entrypoint"),
            None => fail(
                "the image lacks the dynamic loader of the GNU C library, which the agent needs (2.17 or newer)"
                    .to_owned(),
                Fault::Image,
            )
            .remedy("start from an image with glibc; musl and distroless static images cannot run NCCL either"),
        },
        // An engine's other messages do not tell whose fault they are.
        StartFailure::Other => {
            return Err(Outcome::unknown(format!("the engine did not start the container: {said}")));
        }
    })
}

/// The program that the engine could not start, if it is not the agent: `… process: exec: "/entry": stat /entry: …`.
fn entrypoint_of(message: &str) -> Option<&str> {
    const AGENT: &str = "/rdmaprep/agent";
    let (_, rest) = message.split_once("exec: \"")?;
    let (program, _) = rest.split_once('"')?;
    (!program.is_empty() && program != AGENT).then_some(program)
}

/// Compares what the image needs with what the host has.
fn driver_too_old(subject: &RunSubject<'_>, message: &str) -> Outcome {
    // libnvidia-container: `requirement error: unsatisfied condition: cuda>=12.4, please update your driver to …`.
    const MARK: &str = "unsatisfied condition:";
    let unmet = message.split_once(MARK).and_then(|(_, rest)| rest.split([',', '\n', '"']).next());
    let asked = subject.facts.and_then(|facts| facts.cuda.requires.first());
    let need = match (unmet.map(str::trim).filter(|text| !text.is_empty()), asked) {
        (Some(unmet), _) => unmet.to_owned(),
        (None, Some(conditions)) => conditions.join(" and "),
        (None, None) => "a newer driver".to_owned(),
    };
    let have = match &subject.run.host_driver {
        Some(driver) => format!("the host's driver is {driver}"),
        None => "the host's driver lacks it (nvidia-smi on the host shows its version)".to_owned(),
    };
    let evidence = [words(message)].into_iter();
    let asked = asked.map(|conditions| format!("NVIDIA_REQUIRE_CUDA: {}", conditions.join(", ")));
    Outcome::fail(format!("the image needs {need}, but {have}"))
        .named(CauseId::DriverTooOld)
        .evidence(evidence.chain(asked))
        .remedy(CauseId::DriverTooOld.info().remedy)
}

fn ended_at_once(exit_code: i64, out_of_memory: bool, last_lines: &[String]) -> Judged {
    let summary = format!("the container ended with exit code {exit_code} before the agent reported anything");
    let lines = || last_lines.iter().cloned();
    if out_of_memory {
        return Ok(Outcome::fail(format!("{summary}: the kernel killed it for memory"))
            .evidence(lines())
            .blame(Fault::Host));
    }
    if let Some(outcome) = agent_does_not_load(last_lines) {
        return Ok(outcome.evidence(lines()));
    }
    Err(Outcome::unknown(summary).evidence(lines()))
}

/// The message of ld.so about the agent, as in `elf/dl-load.c` and `elf/dl-version.c`.
pub(super) fn agent_does_not_load(last_lines: &[String]) -> Option<Outcome> {
    /// The glibc version that `make dist` builds for.
    const FLOOR: (u32, u32) = (2, 17);
    const REMEDY: &str = "use the rdmaprep that `make dist` builds, which starts with every glibc since 2.17 (or name it: \
                          --agent FILE)";
    // `/rdmaprep/agent: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /rdmaprep/agent)`
    let wanted = last_lines.iter().filter(|line| line.contains("not found")).filter_map(|line| {
        let version = line.split_once("GLIBC_")?.1.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    if let Some((major, minor)) = wanted.max() {
        return Some(if (major, minor) > FLOOR {
            Outcome::fail(format!(
                "this rdmaprep was built for glibc {major}.{minor}, and the image's is older: that says nothing about the image"
            ))
            .remedy(REMEDY)
            .blame(Fault::Launch)
        } else {
            Outcome::fail("the image's C library is older than glibc 2.17, which the agent needs")
                .remedy("base the image on a distribution of 2013 or later")
                .blame(Fault::Image)
        });
    }
    let missing = last_lines.iter().find_map(|line| {
        let (_, rest) = line.split_once("agent: error while loading shared libraries: ")?;
        rest.split(':').next()
    })?;
    Some(
        Outcome::fail(format!(
            "this rdmaprep needs {missing}, which the image lacks: that says nothing about the image"
        ))
        .remedy(REMEDY)
        .blame(Fault::Launch),
    )
}

pub(super) fn network_mode(subject: &RunSubject<'_>) -> Judged {
    subject.started()?;
    let network = subject.run.launch.network.as_str();
    if network.is_empty() {
        return Err(Outcome::unknown("the container's network mode is unknown"));
    }
    if network == "host" {
        return Ok(Outcome::pass("the container shares the host's network"));
    }
    let remedy = "docker run --network host (in Kubernetes: hostNetwork: true)";
    if let Some(cause) = subject.cause(&[CauseId::NetnsGidMismatch, CauseId::NoIpInterface]) {
        return Ok(Outcome::fail(format!("{}: {}; the container is on {network}", cause.id, cause.summary))
            .evidence(cause.evidence.iter().cloned())
            .remedy(remedy)
            .blame(cause.fault));
    }
    // The GIDs of a RoCE device are its interface's addresses, and that interface is in the host's namespace.
    if let Some(line) = subject.warned(&["ibv_modify_qp failed with error No such device"]) {
        return Ok(Outcome::fail(format!(
            "the addresses of the RDMA device are in the host's network, but the container is on {network}"
        ))
        .named(CauseId::NetnsGidMismatch)
        .evidence([super::say_line(line)])
        .remedy(remedy));
    }
    Ok(Outcome::warn(format!("the container is on {network}, which lacks the addresses of the host's RDMA devices"))
        .remedy(remedy)
        .blame(Fault::Launch))
}

#[cfg(test)]
mod tests {
    use crate::checks::Status::*;
    use crate::checks::run::testing::*;
    use crate::diagnosis::Fault::*;
    use crate::facts::run::*;

    #[test]
    fn every_reason_not_to_start_is_explained() {
        use StartFailure::*;
        let run = not_started(NvidiaToolkitMissing, "could not select device driver \"\" with capabilities: [[gpu]]");
        let words = ["nvidia-toolkit-missing", "could not select device driver", "nvidia-ctk runtime configure"];
        expect(&found(&run, "container-start"), Fail, Some(Host), &words);
        for (cause, status, blame, word) in [
            (CdiDeviceUnknown, Fail, Some(Host), "nvidia-ctk cdi generate"),
            (DeviceMissing, Fail, Some(Host), "/dev/infiniband"),
            (NoLoader, Fail, Some(Image), "glibc"),
            (Other, Unknown, None, "the engine's words"),
        ] {
            expect(
                &found(&not_started(cause, "the engine's words\n"), "container-start"),
                status,
                blame,
                &[word, "the engine's words"],
            );
        }
    }

    #[test]
    fn an_entrypoint_that_is_not_there_is_no_missing_loader() {
        let words = |program: &str| {
            format!("unable to start container process: exec: \"{program}\": stat {program}: no such file or directory")
        };
        let run = not_started(StartFailure::NoLoader, &words("/entry"));
        let expected = ["the image's entrypoint cannot be started: /entry", "--keep-entrypoint"];
        expect(&found(&run, "container-start"), Fail, Some(Image), &expected);
        let run = not_started(StartFailure::NoLoader, &words("/rdmaprep/agent"));
        expect(&found(&run, "container-start"), Fail, Some(Image), &["lacks the dynamic loader"]);
    }

    #[test]
    fn need_and_have_of_a_driver() {
        let message = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.6, please update your \
                       driver to a newer version, or use an earlier cuda container: unknown";
        let mut run = not_started(StartFailure::DriverTooOld, message);
        let words = ["driver-too-old: the image needs cuda>=12.6, but the host's driver is 550.54.14"];
        expect(&found(&run, "container-start"), Fail, Some(Host), &words);
        run.host_driver = None;
        expect(&found(&run, "container-start"), Fail, Some(Host), &["nvidia-smi on the host"]);
    }

    #[test]
    fn a_container_that_ended_before_the_first_word() {
        let mut run = good_run();
        run.agent_version = None;
        let ended = |out_of_memory, line: &str| Ending::ContainerEnded {
            exit_code: 127,
            out_of_memory,
            last_lines: vec![line.into()],
        };
        run.ending = ended(false, "/lib64/libc.so.6: version `GLIBC_2.17' not found (required by /agent)");
        expect(&found(&run, "container-start"), Fail, Some(Image), &["glibc 2.17"]);
        // A build of a newer system in an older image: seen with Debian 12's in Debian 11.
        let newer = "/rdmaprep/agent: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /rdmaprep/agent)";
        run.ending = ended(false, newer);
        expect(
            &found(&run, "container-start"),
            Fail,
            Some(Launch),
            &["glibc 2.34", "make dist", "nothing about the image"],
        );
        expect(&found(&run, "ranks-complete"), Unknown, None, &["did not start"]);
        let missing = "/rdmaprep/agent: error while loading shared libraries: libgcc_s.so.1: cannot open shared object file: No such file or directory";
        run.ending = ended(false, missing);
        expect(&found(&run, "container-start"), Fail, Some(Launch), &["needs libgcc_s.so.1", "--agent FILE"]);
        run.ending = ended(true, "");
        expect(&found(&run, "container-start"), Fail, Some(Host), &["for memory"]);
        run.ending = ended(false, "what is this");
        expect(&found(&run, "container-start"), Unknown, None, &["exit code 127", "what is this"]);
    }

    #[test]
    fn what_the_engine_refused_is_said() {
        let mut run = good_run();
        run.launch.given_up = vec!["ulimit memlock: refused".into()];
        expect(&found(&run, "container-start"), Warn, Some(Host), &["ulimit memlock: refused"]);
    }

    #[test]
    fn networks() {
        let mut run = good_run();
        expect(&found(&run, "network-mode"), Pass, None, &[]);
        run.launch.network = "bridge".into();
        expect(&found(&run, "network-mode"), Warn, Some(Launch), &["--network host"]);
        run.launch.network.clear();
        expect(&found(&run, "network-mode"), Unknown, None, &[]);
    }
}

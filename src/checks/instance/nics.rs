//! Whether a preflight's container sees as many NICs as the type has.

use super::InstanceSubject;
use crate::checks::Outcome;
use crate::checks::host::judge_nic_count;

pub(super) fn count(subject: &InstanceSubject<'_>) -> Option<Outcome> {
    let run = subject.run?;
    let instance = subject.chosen.instance;
    let Some(nics) = instance.nics else {
        return Some(Outcome::skip(format!("no document gives the number of NICs of {}", instance.name)));
    };
    let Some(environment) = &run.environment else {
        return Some(Outcome::unknown("the container's devices are unknown: the agent did not report them"));
    };
    let fabric = subject.target.fabric;
    let own = environment.rdma_devices.iter().filter(|device| fabric.drives(device.nic()));
    let lines: Vec<String> = own
        .map(|device| match &device.pci_address {
            Some(address) => format!("{}: PCI {address}", device.name),
            None => device.name.clone(),
        })
        .collect();
    let found = lines.len();
    let of_type = format!("{} has ({})", instance.name, nics.source.say());
    Some(judge_nic_count(fabric.title, found, nics.value, Some(&of_type), lines))
}

#[cfg(test)]
mod tests {
    use super::super::Measured;
    use super::super::testing::findings;
    use crate::checks::Finding;
    use crate::checks::Status::*;
    use crate::checks::run::testing::{expect, good_run};
    use crate::diagnosis::Fault::*;
    use crate::facts::run::RunFacts;

    fn found(run: &RunFacts, name: &str) -> Finding {
        let all = findings(("ecs", name), None, Some(run), &Measured::NotAsked);
        all.into_iter().find(|finding| finding.check == "instance-nic-count").unwrap()
    }

    /// The good run has one device.
    #[test]
    fn as_many_as_the_type_has() {
        let mut run = good_run();
        expect(&found(&run, "gn8is.2xlarge"), Pass, None, &["1 device of Alibaba eRDMA", "ecs.gn8is.2xlarge"]);
        let words = ["1 device of Alibaba eRDMA, but 2 are expected", "ecs.ebmgn8v.48xlarge", "erdma_0: PCI"];
        expect(&found(&run, "ebmgn8v.48xlarge"), Fail, Some(Host), &words);
        expect(&found(&run, "ebmgn8ia.64xlarge"), Skip, None, &["no document gives"]);
        // A foreign device is none of the fabric's.
        run.environment.as_mut().unwrap().rdma_devices[0].vendor = Some("0x15b3".into());
        run.environment.as_mut().unwrap().rdma_devices[0].driver = Some("mlx5_core".into());
        expect(&found(&run, "gn8is.2xlarge"), Fail, Some(Host), &["0 devices"]);
        run.environment = None;
        expect(&found(&run, "gn8is.2xlarge"), Unknown, None, &[]);
    }
}

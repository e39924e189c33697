//! What is to be done to an image, ready to paste.

use super::subject::Subject;
use crate::fabric::RepositoryChoice;
use crate::facts::{PackageFacts, PackageManager};
use crate::plan::has_package_manager;
use crate::reference::split_tag;
use crate::shell::shell_quote;

/// The command that repairs most of what these checks find.
pub(super) fn rebuild(subject: &Subject<'_>) -> String {
    let has_vendor = subject.target.fabric.public_mirror.is_some();
    match subject.facts.packages.manager {
        PackageManager::Dpkg => {}
        _ if has_vendor => {}
        PackageManager::DpkgStatusD => return subject.target.fabric.distribution_packages(),
        _ => return rpm_install(subject),
    }
    let is_rpm = subject.facts.packages.manager.is_rpm();
    if is_rpm && !has_package_manager(&subject.facts.packages) {
        return format!("{}   # with the fabric vendor's repository", rpm_install(subject));
    }
    let image = &subject.facts.image;
    let named = image.reference.strip_prefix("docker-daemon:").filter(|name| !name.starts_with("sha256:"));
    let name = named.or(image.repo_tags.first().map(String::as_str));
    let (distro, choice) = (subject.facts.distro.as_ref(), RepositoryChoice::default());
    let fabric = subject.target.fabric;
    let more = if !has_vendor {
        format!(" --target {}", subject.target.id)
    } else if is_rpm && fabric.yum_repository(distro, &image.architecture, &choice, true).is_err() {
        " --mirror URL --suite PATH".to_owned()
    } else if !is_rpm && fabric.apt_repository(distro, &image.architecture, &choice).is_err() {
        " --mirror URL --suite SUITE".to_owned()
    } else {
        String::new()
    };
    let Some(name) = name else {
        return format!("rdmaprep build IMAGE -t NEW{more}");
    };
    let (path, tag) = split_tag(name.split('@').next().unwrap_or(name));
    // An archive's names are whatever its creator wrote.
    let new = format!("{path}:{}-{}", tag.unwrap_or("latest"), subject.target.fabric.id);
    format!("rdmaprep build {} -t {}{more}", shell_quote(name), shell_quote(&new))
}

/// The command that installs by name or by what a package provides, as the image has it.
pub(super) fn install_command(packages: &PackageFacts) -> &'static str {
    match ["zypper", "dnf", "microdnf", "tdnf"].into_iter().find(|name| packages.installed(name).is_some()) {
        Some("zypper") => "zypper --non-interactive install",
        Some("dnf") => "dnf install -y",
        Some("microdnf") => "microdnf install -y",
        Some("tdnf") => "tdnf install -y",
        _ => "yum install -y",
    }
}

/// The line that installs a package with the same name everywhere.
pub(super) fn install_line(packages: &PackageFacts, name: &str) -> String {
    match packages.manager {
        PackageManager::DpkgStatusD => {
            format!("start from a base image with {name}: this one has nothing to install it with")
        }
        manager if manager.is_rpm() => format!("RUN {} {name}", install_command(packages)),
        _ => format!("RUN apt-get update && apt-get install -y --no-install-recommends {name}"),
    }
}

/// Installs what a job needs, by rpm's names.
pub(super) fn rpm_install(subject: &Subject<'_>) -> String {
    let names = subject.target.fabric.rpm_packages.join(" ");
    format!("RUN {} {names}", install_command(&subject.facts.packages))
}

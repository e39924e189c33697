//! Package databases in whole images: rpm's three formats (`tests/data/rpm/README.md`), dpkg's two, and broken ones.

use crate::support::image_fixture;
use crate::support::own_process::runs_in_own_process;
use crate::support::rounds;

use image_fixture::archive_of;
use rdmaprep::checks::{Bar, Finding, Status, Subject, Verdict, check_image, verdict};
use rdmaprep::fabric::RepositoryChoice;
use rdmaprep::fabric::erdma::ERDMA;
use rdmaprep::facts::{ImageFacts, PackageFacts, PackageManager};
use rdmaprep::image::archive::read_archive;
use rdmaprep::image::layer::{MAX_CONTENT_BYTES, MAX_DATABASE_BYTES, index_layer};
use rdmaprep::image::rootfs::RootFs;
use rdmaprep::inspect::packages::load_packages;
use rdmaprep::inspect::{harvest, inspect};
use rdmaprep::plan::{PlanError, SwapOptions, plan_swap};
use rdmaprep::remedy::with_remedy;
use rdmaprep::targets;
use std::io::Read;
use std::time::{Duration, Instant};

/// An image of one layer: files, and links where the content starts with `->`.
#[derive(Default, Clone)]
struct Tree(Vec<(String, Vec<u8>)>);

impl Tree {
    fn with(mut self, path: &str, content: impl AsRef<[u8]>) -> Tree {
        self.0.push((path.to_owned(), content.as_ref().to_vec()));
        self
    }

    fn layer(&self) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, content) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            match content.strip_prefix(b"->") {
                Some(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    tar.append_link(&mut header, path, std::str::from_utf8(target).unwrap()).unwrap();
                }
                None => {
                    header.set_size(content.len() as u64);
                    tar.append_data(&mut header, path, content.as_slice()).unwrap();
                }
            }
        }
        tar.into_inner().unwrap()
    }

    fn facts(&self) -> ImageFacts {
        let config = serde_json::json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {}});
        let archive = archive_of(&[self.layer()], &config, "example/rpm:1");
        let image = read_archive(archive.as_slice(), None, &harvest).unwrap();
        inspect(&image, "docker-archive:example/rpm:1".into()).unwrap()
    }

    /// The packages alone, without the digests of an archive around them.
    fn packages(&self) -> PackageFacts {
        let index = index_layer(self.layer().as_slice(), &harvest).unwrap();
        load_packages(&RootFs::merge([index]), "amd64").unwrap()
    }
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).unwrap();
    content
}

macro_rules! database {
    ($name:literal) => {
        gunzip(include_bytes!(concat!("../data/rpm/", $name, ".gz")))
    };
}

fn sqlite_ofed() -> Vec<u8> {
    database!("el9-ofed-rpmdb.sqlite")
}

fn ndb() -> Vec<u8> {
    database!("suse-Packages.db")
}

fn bdb() -> Vec<u8> {
    database!("el7-split-Packages")
}

fn findings(facts: &ImageFacts) -> Vec<Finding> {
    check_image(&Subject { facts, target: targets::by_id("pai-dlc").unwrap() })
}

fn finding(facts: &ImageFacts, check: &str) -> Finding {
    findings(facts).into_iter().find(|finding| finding.check == check).unwrap()
}

fn names(packages: &PackageFacts) -> Vec<&str> {
    packages.list.iter().map(|package| package.name.as_str()).collect()
}

const USR_MERGED: [(&str, &str); 3] = [("bin", "->usr/bin"), ("sbin", "->usr/sbin"), ("lib64", "->usr/lib64")];

fn merged() -> Tree {
    let tree = Tree::default().with("usr/bin/sh", "ELF").with("usr/sbin/ldconfig", "ELF");
    USR_MERGED.iter().fold(tree, |tree, (path, target)| tree.with(path, target))
}

/// The rpm twin of case A01: OFED's builds, told by their versions, in a database that rpm wrote.
#[test]
fn sqlite_with_mellanox_builds() {
    let facts = merged()
        .with("var/lib/rpm/rpmdb.sqlite", sqlite_ofed())
        .with("usr/lib64/libibverbs.so.1.14.47.0", "ELF\0-rdmav34.so\0")
        .with("usr/lib64/libibverbs/libmlx5-rdmav34.so", "ELF")
        .with("usr/lib64/libnccl.so.2.21.5", "ELF\0NCCL version 2.21.5+cuda12.4\n\0")
        .with("opt/mellanox/ucx/lib/libucp.so.0", "ELF")
        .facts();
    assert_eq!(facts.packages.manager, PackageManager::RpmSqlite);
    assert_eq!(facts.packages.list.len(), 17);
    let package = |name: &str| facts.packages.installed(name).unwrap();
    assert_eq!(package("libibverbs").version, "2307mlnx47-1.2310119");
    assert_eq!(package("libibverbs").source.as_deref(), Some("rdma-core"));
    assert_eq!(package("libibverbs").architecture, "x86_64");
    assert_eq!(package("tzdata").architecture, "noarch");
    assert_eq!(package("rdma-core").source, None);
    assert_eq!(package("dbus").version, "1:1.12.20-60.el9");
    assert_eq!(package("dbus-libs").depends, "(glibc or musl), dbus = 1:1.12.20-60.el9");
    // A file that is required by path is provided by the package that owns it, under whichever of its names.
    assert!(package("bash").provides.ends_with(", /bin/sh"), "{}", package("bash").provides);
    assert!(package("glibc").provides.ends_with(", /sbin/ldconfig"), "{}", package("glibc").provides);

    assert_eq!(finding(&facts, "package-database").summary, "17 packages in the rpm database (sqlite)");
    assert_eq!(finding(&facts, "packages-consistent").status, Status::Pass, "{facts:#?}");
    let found = finding(&facts, "ofed-packages");
    assert_eq!(found.status, Status::Fail);
    let mlnx = [
        "infiniband-diags",
        "libibumad",
        "libibverbs",
        "libibverbs-utils",
        "librdmacm",
        "librdmacm-utils",
        "rdma-core",
        "rdma-core-devel",
    ];
    assert_eq!(found.evidence, mlnx.map(|name| format!("{name} 2307mlnx47-1.2310119")));
    let remedy = found.remedy.unwrap();
    assert!(
        remedy.starts_with(&format!("RUN rpm -e --nodeps {} && yum install -y libibverbs ", mlnx.join(" "))),
        "{remedy}"
    );

    // What has no libibverbs for the fabric is not told to use `rdmaprep build`, which refuses rpm.
    let remedy = finding(&facts, "rdma-provider").remedy.unwrap();
    assert!(remedy.starts_with("RUN yum install -y libibverbs "), "{remedy}");

    // Who owns what.
    assert_eq!(facts.verbs.libraries[0].package.as_deref(), Some("libibverbs"));
    assert_eq!(facts.verbs.providers[0].package.as_deref(), Some("libibverbs"));
    assert_eq!(facts.nccl[0].package.as_deref(), Some("libnccl"));
    assert_eq!(facts.ofed.directories[0].owners, ["ucx"]);
}

/// The last transaction stands in the log alone.
#[test]
fn sqlite_with_a_write_ahead_log() {
    let database = database!("el9-wal-rpmdb.sqlite");
    let wal = database!("el9-wal-rpmdb.sqlite-wal");
    let base = Tree::default().with("usr/lib/sysimage/rpm/rpmdb.sqlite", &database);
    let facts = base.clone().with("usr/lib/sysimage/rpm/rpmdb.sqlite-wal", &wal).facts();
    assert_eq!(
        names(&facts.packages),
        ["bash", "dbus", "dbus-libs", "glibc", "libibverbs", "librdmacm", "rdma-core", "tzdata"]
    );
    assert_eq!(finding(&facts, "ofed-packages").status, Status::Pass);
    assert_eq!(base.facts().packages.list.len(), 5);
    // A log whose last frames never reached the disk counts as far as it was committed, as it does for SQLite.
    let cut = base.clone().with("usr/lib/sysimage/rpm/rpmdb.sqlite-wal", &wal[..wal.len() - 5000]).facts();
    assert!([5, 6, 7].contains(&cut.packages.list.len()), "{:?}", names(&cut.packages));
    // A log of another round, by its salt.
    let mut stale = wal.clone();
    stale[40] ^= 1;
    assert_eq!(base.with("usr/lib/sysimage/rpm/rpmdb.sqlite-wal", stale).facts().packages.list.len(), 5);
}

/// One place is a link to the other, in either direction; the database counts once.
#[test]
fn ndb_behind_a_link() {
    for (real, link, target) in [
        ("usr/lib/sysimage/rpm", "var/lib/rpm", "->../../usr/lib/sysimage/rpm"),
        ("var/lib/rpm", "usr/lib/sysimage/rpm", "->/var/lib/rpm"),
        ("usr/share/rpm", "var/lib/rpm", "->../../usr/share/rpm"),
    ] {
        let facts = merged().with(&format!("{real}/Packages.db"), ndb()).with(link, target).facts();
        assert_eq!(facts.packages.manager, PackageManager::RpmNdb, "{:?}", facts.packages.problem);
        assert_eq!(facts.packages.list.len(), 10);
        // SUSE splits libmlx5 off rdma-core to this day: it is in nobody's way.
        assert_eq!(finding(&facts, "ofed-packages").status, Status::Pass);
        assert_eq!(finding(&facts, "packages-consistent").status, Status::Pass);
    }
}

/// Case A13: providers that are packages of their own have to go before a newer libibverbs comes.
#[test]
fn berkeley_db_with_split_providers() {
    for content in [bdb(), database!("el7-split-Packages-big-endian")] {
        let facts = merged().with("var/lib/rpm/Packages", content).facts();
        assert_eq!(facts.packages.manager, PackageManager::RpmBdb, "{:?}", facts.packages.problem);
        assert_eq!(facts.packages.list.len(), 9);
        let found = finding(&facts, "ofed-packages");
        assert_eq!(found.status, Status::Warn);
        assert_eq!(found.evidence, ["libmlx4 1.2.1-1.el7", "libmlx5 1.2.1-8.el7"]);
        assert!(found.remedy.unwrap().starts_with("RUN rpm -e --nodeps libmlx4 libmlx5 && yum install"));
        assert_eq!(finding(&facts, "packages-consistent").status, Status::Pass);
        assert_eq!(finding(&facts, "python3").remedy.as_deref(), Some("RUN yum install -y python3"));

        // MLNX_OFED 4 split them, too; its build is a failure, and the other provider still has to go along.
        let mut facts = facts;
        let libmlx5 = facts.packages.list.iter_mut().find(|package| package.name == "libmlx5").unwrap();
        libmlx5.version = "1.2.1mlnx1-OFED.3.4.0.0.4.34100".into();
        let found = finding(&facts, "ofed-packages");
        assert_eq!(found.status, Status::Fail);
        assert_eq!(found.evidence, ["libmlx5 1.2.1mlnx1-OFED.3.4.0.0.4.34100"]);
        assert!(found.remedy.unwrap().starts_with("RUN rpm -e --nodeps libmlx4 libmlx5 && yum install"));
    }
}

#[test]
fn an_unmet_requirement_is_named() {
    let mut facts = merged().with("var/lib/rpm/Packages.db", ndb()).facts();
    facts.packages.list.retain(|package| package.name != "libibverbs1");
    let found = finding(&facts, "packages-consistent");
    assert_eq!(found.status, Status::Warn);
    assert_eq!(found.evidence, ["libibverbs needs libibverbs1", "libmlx5-1 needs libibverbs1"]);
    assert_eq!(found.remedy.as_deref(), Some("RUN zypper --non-interactive install libibverbs1"));
    // A condition that is not understood does not pass.
    let mut facts = merged().with("var/lib/rpm/Packages.db", ndb()).facts();
    facts.packages.list[0].depends.push_str(", (a unless b)");
    assert_eq!(finding(&facts, "packages-consistent").status, Status::Unknown);
}

/// Case F19: what cannot be read is neither empty nor absent, and nothing that rests on it passes.
#[test]
fn an_unreadable_database_is_not_an_empty_one() {
    let sqlite = sqlite_ofed();
    let bdb = bdb();
    let mut encrypted = bdb.clone();
    encrypted[24] = 1;
    let base = Tree::default;
    for (tree, problem) in [
        (
            base().with("var/lib/rpm/rpmdb.sqlite", &sqlite[..8192]),
            "rpm database /var/lib/rpm/rpmdb.sqlite: it is cut off",
        ),
        (
            base().with("usr/share/rpm/rpmdb.sqlite", "no database at all"),
            "rpm database /usr/share/rpm/rpmdb.sqlite: it is cut off",
        ),
        (
            base().with("var/lib/rpm/Packages", vec![b'x'; 4096]),
            "rpm database /var/lib/rpm/Packages: it does not start like a Berkeley DB database",
        ),
        (
            base().with("var/lib/rpm/Packages", encrypted),
            "rpm database /var/lib/rpm/Packages: it is an encrypted Berkeley DB, which is not supported",
        ),
        (base().with("var/lib/rpm/Packages", ""), "rpm database /var/lib/rpm/Packages: the file is empty"),
        (
            base()
                .with("var/lib/rpm/rpmdb.sqlite", &sqlite)
                .with("var/lib/rpm/rpmdb.sqlite-journal", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7 and so on"),
            "rpm database /var/lib/rpm/rpmdb.sqlite: it is a transaction that was never finished, which is not supported",
        ),
        (
            base().with("opt/rpm/Packages", &bdb).with("var/lib/rpm", "->/opt/rpm"),
            "rpm database /opt/rpm/Packages: a link leads to /opt/rpm/Packages, which is not a known place for a database",
        ),
        (
            base().with("var/lib/rpm/rpmdb.sqlite", &sqlite).with("usr/share/rpm/Packages", &bdb),
            "two rpm databases differ: /var/lib/rpm/rpmdb.sqlite with 17 packages and /usr/share/rpm/Packages with 9",
        ),
    ] {
        let facts = tree.facts();
        assert_eq!(facts.packages.manager, PackageManager::Unreadable);
        assert_eq!(facts.packages.problem.as_deref(), Some(problem));
        for check in ["package-database", "packages-consistent", "ofed-packages", "ofed-leftovers"] {
            let found = finding(&facts, check);
            assert_eq!(
                (found.status, found.evidence.as_slice()),
                (Status::Unknown, &[problem.to_owned()][..]),
                "{check}"
            );
        }
    }
    let facts = base().with("etc/os-release", "ID=rhel\n").facts();
    assert_eq!((facts.packages.manager, facts.packages.problem.clone()), (PackageManager::None, None));
    assert_eq!(finding(&facts, "package-database").summary, "no package database was found");
    assert_eq!(finding(&facts, "ofed-packages").status, Status::Unknown);
}

/// An empty database of the other kind is a tool that somebody installed.
#[test]
fn the_database_with_packages_counts() {
    let status = "Package: libc6\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\n";
    let rpm = Tree::default().with("var/lib/rpm/Packages", bdb());
    let facts = rpm.clone().with("var/lib/dpkg/status", "").facts();
    assert_eq!(facts.packages.manager, PackageManager::RpmBdb);
    let facts = rpm.with("var/lib/dpkg/status", status).facts();
    assert_eq!(facts.packages.manager, PackageManager::Dpkg);
    let facts = Tree::default().with("var/lib/dpkg/status", "").facts();
    assert_eq!(facts.packages.manager, PackageManager::Dpkg);
    for check in ["package-database", "ofed-packages"] {
        assert_eq!(finding(&facts, check).summary, "the dpkg database is empty");
        assert_eq!(finding(&facts, check).status, Status::Unknown);
    }
}

/// An image of rpm packages whose package manager cannot do the swap.
#[test]
fn no_swap_without_dnf_or_yum() {
    let facts = Tree::default().with("var/lib/rpm/Packages.db", ndb()).with("etc/os-release", "ID=sles\n").facts();
    let repository = RepositoryChoice {
        mirror: Some("http://127.0.0.1:1".into()),
        suite: Some("sles/15/erdma/x86_64".into()),
        ..RepositoryChoice::default()
    };
    let error = plan_swap(&facts, None, &ERDMA, &SwapOptions { repository, ..SwapOptions::default() }).unwrap_err();
    assert!(matches!(error, PlanError::NoYum(_)), "{error}");
    assert!(with_remedy(&error).contains("dnf or yum is needed"), "{error}");
}

/// Case A14: the vendor's list has distributions of rpm, too; what is not on it is refused with the list.
#[test]
fn distributions_of_rpm() {
    for (release, expected) in [
        ("ID=alinux\nVERSION_ID=\"3\"\n", Status::Pass),
        ("ID=\"centos\"\nVERSION_ID=\"7\"\n", Status::Pass),
        ("ID=\"rhel\"\nVERSION_ID=\"8.10\"\n", Status::Pass),
        ("ID=anolis\nVERSION_ID=8.8\n", Status::Warn),
        ("ID=rocky\nVERSION_ID=9.3\n", Status::Warn),
    ] {
        let facts = Tree::default().with("var/lib/rpm/Packages", bdb()).with("etc/os-release", release).facts();
        assert_eq!(finding(&facts, "distro-listed").status, expected, "{release}");
        let error = plan_swap(&facts, None, &ERDMA, &SwapOptions::default()).unwrap_err();
        // The database of this test has no package manager, which is said of listed ones only.
        match expected {
            Status::Pass => assert!(matches!(error, PlanError::NoYum(_)), "{release}: {error}"),
            _ => assert!(with_remedy(&error).contains("centos 7 (amd64), rhel 8 (amd64)"), "{release}: {error}"),
        }
    }
}

#[test]
fn yum_repositories_of_ofed() {
    let repo = "[mlnx_ofed_23.10-1.1.9.0]\nname=x\nbaseurl=file:///opt/MLNX_OFED_LINUX-23.10-1.1.9.0-rhel9.2-x86_64/RPMS\nenabled=1\n";
    let shared = "[doca]\nbaseurl=https://linux.mellanox.com/public/repo/doca/2.9.0/rhel9/x86_64/\nenabled=0\n[mine]\nbaseurl=http://example.com/\n";
    let facts = Tree::default()
        .with("var/lib/rpm/rpmdb.sqlite", sqlite_ofed())
        .with("etc/yum.repos.d/mlnx_ofed.repo", repo)
        .with("etc/yum.repos.d/mixed.repo", shared)
        .with(
            "etc/yum.repos.d/mine.repo",
            "[base]\nbaseurl=http://example.com/\ngpgkey=http://linux.mellanox.com/key\n",
        )
        .facts();
    let found = finding(&facts, "ofed-leftovers");
    assert_eq!(found.status, Status::Warn);
    assert!(found.summary.contains("a repository that can bring OFED back"), "{}", found.summary);
    assert_eq!(
        found.evidence,
        [
            "package mlnx-tools 23.10-0.2310119",
            "repository doca in /etc/yum.repos.d/mixed.repo (disabled): https://linux.mellanox.com/public/repo/doca/2.9.0/rhel9/x86_64/",
            "repository mlnx_ofed_23.10-1.1.9.0 in /etc/yum.repos.d/mlnx_ofed.repo: file:///opt/MLNX_OFED_LINUX-23.10-1.1.9.0-rhel9.2-x86_64/RPMS",
        ]
    );
    assert_eq!(found.remedy.as_deref(), Some("RUN rpm -e mlnx-tools && rm -rf /etc/yum.repos.d/mlnx_ofed.repo"));
}

/// Case F18: distroless.
#[test]
fn status_d() {
    let library = "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5";
    let facts = Tree::default()
        .with("var/lib/dpkg/status.d/libnccl2", "Package: libnccl2\nVersion: 2.21.5-1+cuda12.4\nArchitecture: amd64\n")
        .with("var/lib/dpkg/status.d/libnccl2.md5sums", format!("d41d8cd98f00b204e9800998ecf8427e  {library}\n"))
        .with(library, "ELF\0NCCL version 2.21.5+cuda12.4\n\0")
        .facts();
    assert_eq!(facts.packages.manager, PackageManager::DpkgStatusD);
    assert_eq!(names(&facts.packages), ["libnccl2"]);
    assert!(facts.packages.list[0].is_installed());
    assert_eq!(facts.nccl[0].package.as_deref(), Some("libnccl2"));
    assert_eq!(
        finding(&facts, "package-database").summary,
        "1 packages in the dpkg database, distroless: no apt, no shell, no python3"
    );
    assert_eq!(finding(&facts, "python3").status, Status::Fail);
    assert_eq!(verdict(&findings(&facts), Bar::Fail), Verdict::Fail);
}

#[test]
fn dpkg_architectures_states_and_diversions() {
    let status = "Package: dpkg\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\n\n\
                  Package: libibverbs1\nStatus: install ok installed\nVersion: 44.0-2\nArchitecture: i386\nMulti-Arch: same\n\n\
                  Package: ibverbs-utils\nStatus: install ok installed\nVersion: 44.0-2\nArchitecture: amd64\nDepends: libibverbs1 (>= 34)\n\n\
                  Package: libnccl2\nStatus: install reinstreq half-installed\nVersion: 2\nArchitecture: amd64\n\n\
                  Package: other\nStatus: install ok installed\nVersion: 2\nArchitecture: amd64\n";
    let facts = Tree::default()
        .with("var/lib/dpkg/status", status)
        .with("var/lib/dpkg/arch", "amd64\ni386\n")
        .with("var/lib/dpkg/diversions", "/usr/lib/libnccl.so.2.1.1\n/usr/lib/moved/libnccl.so.2.1.1\nother\n")
        .with("var/lib/dpkg/info/ibverbs-utils.list", "/usr/lib/libnccl.so.2.1.1\n")
        .with("var/lib/dpkg/info/other.list", "/usr/lib/libnccl.so.2.1.1\n")
        .with("usr/lib/libnccl.so.2.1.1", "ELF\0NCCL version 2.1.1+cuda12.4\n\0")
        .with("usr/lib/moved/libnccl.so.2.1.1", "ELF\0NCCL version 2.1.1+cuda12.4\n\0")
        .facts();
    assert_eq!(facts.packages.foreign_architectures, ["i386"]);
    let owners: Vec<_> = facts.nccl.iter().map(|copy| (copy.path.as_str(), copy.package.as_deref())).collect();
    assert_eq!(
        owners,
        [("/usr/lib/libnccl.so.2.1.1", Some("other")), ("/usr/lib/moved/libnccl.so.2.1.1", Some("ibverbs-utils")),]
    );
    // The library of the other architecture does not serve the program.
    assert_eq!(
        finding(&facts, "packages-consistent").evidence,
        ["libnccl2 is half installed", "ibverbs-utils needs libibverbs1 (>= 34)"]
    );
}

/// The words of the JSON form, which scripts compare.
#[test]
fn managers_in_json() {
    use PackageManager::*;
    let words = [Dpkg, DpkgStatusD, RpmSqlite, RpmNdb, RpmBdb, Unreadable, None]
        .map(|manager| serde_json::to_value(manager).unwrap().as_str().unwrap().to_owned());
    assert_eq!(RpmSqlite.to_string(), "rpm-sqlite");
    assert_eq!(words, ["dpkg", "dpkg-status-d", "rpm-sqlite", "rpm-ndb", "rpm-bdb", "unreadable", "none"]);
    // As versions wrote it that did not read rpm.
    assert_eq!(serde_json::from_str::<PackageManager>("\"rpm-unread\"").unwrap(), Unreadable);
}

/// The packages of an ndb database of `size` bytes, of which what follows `content` is a stream of zeros.
fn packages_of_stream(content: &[u8], size: u64) -> PackageFacts {
    let mut header = tar::Header::new_gnu();
    header.set_path("var/lib/rpm/Packages.db").unwrap();
    header.set_size(size);
    header.set_cksum();
    let rest = size.next_multiple_of(512) + 1024 - content.len() as u64;
    let stream = header.as_bytes().chain(content).chain(std::io::repeat(0).take(rest));
    load_packages(&RootFs::merge([index_layer(stream, &harvest).unwrap()]), "amd64").unwrap()
}

/// The general limit for a file is 64 MiB; a database may be larger, up to its own limit, and is not held beyond that.
#[test]
fn large_databases() {
    if runs_in_own_process("package_databases::large_databases", &[]) {
        return;
    }
    let above_the_general_limit = MAX_CONTENT_BYTES + (1 << 20);
    assert_eq!(packages_of_stream(&ndb(), above_the_general_limit).list.len(), 10);
    assert_eq!(
        packages_of_stream(&[], MAX_DATABASE_BYTES + 1).problem.as_deref(),
        Some("rpm database /var/lib/rpm/Packages.db: /var/lib/rpm/Packages.db is larger than the limit of 536.9 MB")
    );
    assert!(peak_bytes() < 256 << 20, "{} bytes", peak_bytes());
}

/// `inspect` in text says that nothing is known, not that nothing is installed; two images differ by name alone.
#[test]
fn reports_and_differences() {
    let broken = Tree::default().with("var/lib/rpm/Packages", "x").facts();
    let mut text = Vec::new();
    rdmaprep::report::write_facts(&mut text, &broken).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("not known: rpm database /var/lib/rpm/Packages: it does not start"), "{text}");
    let before = Tree::default().with("var/lib/rpm/rpmdb.sqlite", sqlite_ofed()).facts();
    let after = Tree::default()
        .with("var/lib/rpm/rpmdb.sqlite", database!("el9-wal-rpmdb.sqlite"))
        .with("var/lib/rpm/rpmdb.sqlite-wal", database!("el9-wal-rpmdb.sqlite-wal"))
        .facts();
    let diff = rdmaprep::diff::diff_images(&before, &after, |_| false);
    let changed: Vec<&str> = diff.changed.iter().map(|change| change.package.as_str()).collect();
    assert_eq!(changed, ["libibverbs", "librdmacm", "rdma-core"]);
    assert!(diff.gained.is_empty() && diff.lost.len() == 9, "{diff:?}");
}

/// Numbers that look random and are the same each time (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// Peak memory of this process in bytes (proc(5), `VmHWM`).
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn damaged_databases_end_in_an_answer() {
    if runs_in_own_process("package_databases::damaged_databases_end_in_an_answer", &[]) {
        return;
    }
    let mut random = Random(7);
    let (mut tried, mut unreadable) = (0, 0);
    let originals = [
        ("var/lib/rpm/rpmdb.sqlite", sqlite_ofed()),
        ("var/lib/rpm/Packages.db", ndb()),
        ("var/lib/rpm/Packages", bdb()),
        ("var/lib/rpm/Packages", database!("el7-split-Packages-big-endian")),
    ];
    for (path, original) in &originals {
        let whole = Tree::default().with(path, original).packages();
        let mut judge = |content: &[u8]| {
            let start = Instant::now();
            let packages = Tree::default().with(path, content).packages();
            assert_ne!(packages.manager, PackageManager::None);
            let is_unreadable = packages.manager == PackageManager::Unreadable;
            assert_eq!(packages.problem.is_some(), is_unreadable);
            tried += 1;
            unreadable += usize::from(is_unreadable);
            // It takes milliseconds; a walk that a damaged part could prolong would take minutes.
            assert!(start.elapsed() < Duration::from_secs(30), "{path}: {:?}", start.elapsed());
            packages
        };
        // Cut off: all packages or none, never some.
        for part in 0..50 {
            let packages = judge(&original[..original.len() * part / 50]);
            if packages.manager != PackageManager::Unreadable {
                assert_eq!(names(&packages), names(&whole), "{path} cut off at {part} parts of 50");
            }
        }
        // Bits flipped anywhere, and where the structure is.
        for round in 0..rounds(60) {
            let mut content = original.clone();
            let reach = if round % 2 == 0 { content.len() } else { 4200.min(content.len()) };
            for _ in 0..1 + random.below(8) {
                content[random.below(reach)] ^= 1 << random.below(8);
            }
            judge(&content);
        }
        // Numbers replaced by extreme ones.
        for _ in 0..rounds(40) {
            let mut content = original.clone();
            let at = random.below(content.len() / 4) * 4;
            content[at..at + 4]
                .copy_from_slice([[0xff; 4], [0; 4], [0x7f, 0xff, 0xff, 0xff]][random.below(3)].as_slice());
            judge(&content);
        }
    }
    assert!(unreadable * 4 > tried, "only {unreadable} of {tried} damaged databases were noticed");
    // A length that is believed would ask for gigabytes.
    assert!(peak_bytes() < 256 << 20, "{} bytes", peak_bytes());
}

/// Parts of a file that refer to each other in a circle, or to the same part many times.
#[test]
fn circles_end() {
    let problem = |path: &str, content: &[u8]| Tree::default().with(path, content).packages().problem;
    // Berkeley DB: each overflow page is followed by itself.
    let mut content = bdb();
    for page in 1..content.len() / 4096 {
        if content[page * 4096 + 25] == 7 {
            content[page * 4096 + 16..][..4].copy_from_slice(&(page as u32).to_le_bytes());
        }
    }
    assert_eq!(
        problem("var/lib/rpm/Packages", &content).as_deref(),
        Some("rpm database /var/lib/rpm/Packages: it is damaged: a chain of pages is broken")
    );
    // SQLite: the right child of each interior page is the first page.
    let mut content = sqlite_ofed();
    let page_bytes = usize::from(u16::from_be_bytes([content[16], content[17]]));
    let mut changed = 0;
    for page in 1..content.len() / page_bytes {
        if content[page * page_bytes] == 5 {
            content[page * page_bytes + 8..][..4].copy_from_slice(&1_u32.to_be_bytes());
            changed += 1;
        }
    }
    assert!(changed > 0, "the fixture has no interior page");
    assert_eq!(
        problem("var/lib/rpm/rpmdb.sqlite", &content).as_deref(),
        Some("rpm database /var/lib/rpm/rpmdb.sqlite: it is damaged: a page is used twice")
    );
    // ndb: every slot leads to the first package.
    let mut content = ndb();
    let first = content[32..48].to_vec();
    for slot in content[32..4096].chunks_exact_mut(16) {
        slot.copy_from_slice(&first);
    }
    assert_eq!(
        problem("var/lib/rpm/Packages.db", &content).as_deref(),
        Some("rpm database /var/lib/rpm/Packages.db: it is damaged: the packages are longer than the file")
    );
}

//! Every integration test, as one program: linking forty of them took longer than most of their tests.
//!
//! A module is a subject; `cargo test --test suite MODULE::` runs one. What they share is in `tests/support`.

// What tests share counts as product code to these lints.
#![allow(unreachable_pub, clippy::expect_used, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod cases_run;
mod cases_static;
mod cases_targets;
mod cli;
mod devices;
mod dist;
mod docker_engine;
mod docker_mock;
mod docker_podman;
mod docker_programs;
mod dockerfiles;
mod dockerfiles_rpm;
mod engine;
mod engine_rpm;
mod every_cause;
mod examples;
mod explain;
mod full_disk;
mod imports;
mod instances;
mod jobs;
mod kernels;
mod launch;
mod launch_mock;
mod nccl_log;
mod nccl_wheels;
mod os_release;
mod package_databases;
mod preflight;
mod readme;
mod real_database;
mod recipe_builds;
mod recipes;
mod reference;
mod registry;
mod reports;
mod rootfs_against_engine;
mod run_reports;
mod softroce;
mod sources;
mod standin;
mod swap_apt_script;
mod swap_rpm_script;
mod tar_formats;
mod targets;
mod userspaces;
mod verbs_abi;
mod wording;

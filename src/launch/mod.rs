//! Launching an image as a job would be launched: what the host offers, what the container gets, and its start.
//!
//! Input: an image's facts, a target, this host and its engine. Output: a container that runs the agent, and
//! [`crate::facts::run::LaunchFacts`] that say what it was given and why. The course of a launch:
//!
//! 1. [`host::load_host`], [`crate::docker::engine::Engine::host`], [`host::locality`]: what there is
//! 2. [`gpu_access::choose_access`]: how the container gets GPUs
//! 3. [`spec::can_start_agent`], [`spec::plan_launch`]: the container as data
//! 4. [`start::start`]: create, fill, attach, start
//! 5. [`run::run`]: all of that, then listen to the agent until its end; [`collect`] and [`evidence`] add up what it said
//!
//! [`preflight`] goes through all of it.

pub mod collect;
pub mod command_line;
pub mod evidence;
pub mod gpu_access;
pub mod host;
pub mod owner;
pub mod preflight;
pub mod run;
pub mod spec;
pub mod start;
pub mod start_failure;
pub mod variables;

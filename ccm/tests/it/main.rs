//! The program as a process: arguments, exit codes, connections, bad input.

mod bad_input;
mod connect;
mod flags;
mod process;

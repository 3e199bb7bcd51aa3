//! What the program does besides running: the first argument names it.
//!
//! Without such a word all arguments are flags, as those of the Go programs, and every other word is an error.

mod completion;

use std::ffi::OsString;

use crate::exit::Failure;
use crate::program::Program;

/// The answer of the command that the arguments (the program's name first) begin with; `None` if they begin with none.
pub(crate) fn asked(program: &Program, args: &[OsString]) -> Option<Result<String, Failure>> {
    let name = args.get(1)?.to_str()?;
    (name == completion::NAME).then(|| completion::run(program, args))
}

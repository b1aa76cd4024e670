//! What README.md shows is what happens: its programs, commands and statements are run here, and what
//! they print is compared with what it says.

mod command;
mod document;
mod program;
mod statement;

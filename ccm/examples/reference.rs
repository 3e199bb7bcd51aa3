//! Prints the reference of the flags for `README.md`.

fn main() {
    print!("{}", ccm::options::reference::markdown(&ccm::Program::default()));
}

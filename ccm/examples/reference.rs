//! Prints the reference of the flags that stands in `README.md`.

fn main() {
    print!("{}", ccm::options::reference::markdown(&ccm::Program::default()));
}

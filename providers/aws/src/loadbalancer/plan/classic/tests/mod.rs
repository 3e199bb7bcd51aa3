mod golden;
mod pitfalls;

mod desired;
mod golden;
mod pitfalls;

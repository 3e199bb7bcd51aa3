mod alerts;
mod flags;
mod generated;
mod goldens;
mod real_apiserver;
mod rendered;
mod shape;
mod tools;

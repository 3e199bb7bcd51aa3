mod golden;
mod oddities;

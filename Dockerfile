# The image of the program: one static binary, the certificates of public authorities, and nothing else.
#
#   docker build -t ccm:v0.1.0 .
#   docker build -t ccm:v0.1.0 --build-arg FEATURES=fake,aws .
#
# FEATURES are the cargo features of the crate `ccm`: the providers in the image, separated by commas. hack/image.sh
# makes the same content in a folder and checks it, without a container engine.

ARG RUST_VERSION=1.95.0

FROM rust:${RUST_VERSION}-slim-bookworm AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG FEATURES=fake
# Downloads and compiled dependencies stay between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    hack/image.sh build "$FEATURES" /out

FROM scratch
COPY --from=build /out/ /
USER 65532:65532
EXPOSE 10258
ENTRYPOINT ["/ccm"]

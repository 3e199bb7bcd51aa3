# The image of the program: one static binary, the certificates of public authorities, and nothing else.
#
#   docker build -t <your image> --build-arg FEATURES=aws .
#
# FEATURES   required: the cargo features of the crate `ccm`, which are the providers in the image, separated by commas. The
#            program fails at start when --cloud-provider names another one. `aws` needs 7 GB of memory to compile.
# PROFILE    the cargo profile: `dist`, the default, takes 14 minutes with `aws` on two cores and is small; `release` is faster to
#            build
#
# BASE       the image with the toolchain. Nothing of it is in the result but the certificates; pin it for a build that you want to
#            repeat: --build-arg BASE=rust@sha256:…
# CCM_GIT_COMMIT, CCM_GIT_TREE_STATE, CCM_BUILD_DATE
#            what `ccm version` says of the build: --build-arg CCM_GIT_COMMIT="$(git rev-parse HEAD)"
#
# For arm64 and amd64 in one image: docker buildx build --platform linux/amd64,linux/arm64 …
# It compiles on this machine's platform for the other one, not in an emulator, which is many times slower.
#
# hack/image.sh makes the same content in a folder and checks it, without a container engine.

ARG RUST_VERSION=1.95.0
ARG BASE=rust:${RUST_VERSION}-slim-bookworm

FROM --platform=$BUILDPLATFORM ${BASE} AS build
ARG FEATURES
RUN : "${FEATURES:?name the providers of the image, for example: docker build --build-arg FEATURES=aws}"
ARG TARGETARCH
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev make \
 && case "$(dpkg --print-architecture):$TARGETARCH" in \
    amd64:arm64) rustup target add aarch64-unknown-linux-gnu \
      && apt-get install --yes --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;; \
    arm64:amd64) rustup target add x86_64-unknown-linux-gnu \
      && apt-get install --yes --no-install-recommends gcc-x86-64-linux-gnu libc6-dev-amd64-cross ;; \
    esac \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG PROFILE=dist
ARG CCM_GIT_COMMIT
ARG CCM_GIT_TREE_STATE
ARG CCM_BUILD_DATE
# Downloads and compiled dependencies stay between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    hack/image.sh build "$FEATURES" /out "$PROFILE" "$TARGETARCH"

FROM scratch
COPY --from=build /out/ /
# Manifests of Go programs name the program without its folder.
ENV PATH=/usr/local/bin:/bin
USER 65532:65532
EXPOSE 10258
ENTRYPOINT ["/ccm"]

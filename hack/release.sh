#!/usr/bin/env bash
# Makes the files of a release in a folder. It publishes nothing.
#
#   hack/release.sh --dry-run VERSION [--features LIST] [--profile PROFILE] [--out FOLDER] [--key FILE]
#                                     [--addresses FILE] [--without-pictures]
#
# VERSION     must be that of Cargo.toml, of the chart and of a section of CHANGELOG.md; the tree must have no changes
# --features  the providers in the program, separated by commas (default fake,aws,azure,gce,openstack; `aws` needs 7 GB of
#             memory and minutes)
# --profile   of cargo (default dist)
# --out       an empty or new folder (default release-VERSION in the current folder)
# --key       a private key in PEM with which the checksums are signed
# --addresses
#             the addresses of the project (default hack/addresses); all of them must be set
# --without-pictures
#             leaves out the pictures, which need Debian's packages prometheus and chromium, and a real API server
#
# The program is built twice, in the same place from nothing; the two must be equal, byte for byte. The dates in the files are
# that of the commit. The result, for the platform of this machine:
#
#   ccm-VERSION-linux-ARCH          the program, linked statically
#   ccm-VERSION-linux-ARCH.oci.tar  the image as an OCI layout
#   kubectl-ccm-VERSION-linux-ARCH.tar.gz, plugin.yaml
#                                   the same program as a plugin of kubectl, and its manifest for krew
#   ccm-VERSION.tgz                 the chart, whose image is that of the release
#   ccm-VERSION-PROVIDER.yaml       the overlays, with the digest of the image in place of its tag
#   ccm-VERSION.spdx.json           the packages in the program (SPDX)
#   provenance.json                 commit, toolchain and arguments of the build, for each of these files (in-toto, SLSA)
#   CHANGES.md                      the section of the changelog
#   dashboard.svg, debug.png        the dashboard and the page /debug/ during an incident (cargo xtask dashboard)
#   SHA256SUMS, SHA256SUMS.sig      checksums, and their signature with --key
#
# It needs git, jq, openssl, kubectl and GNU tar. Exit status: 0 made; 1 anything else. Not made here: other platforms, which
# need their toolchains, one image for each provider (run it with --features), and publishing.
set -euo pipefail

die() {
	printf 'release: %s\n' "$*" >&2
	exit 1
}

version= features=fake,aws,azure,gce,openstack profile=dist out= key= dry= addresses= pictures=1
while (($# > 0)); do
	case $1 in
	--dry-run) dry=1 ;;
	--without-pictures) pictures= ;;
	--features | --profile | --out | --key | --addresses)
		[[ -n ${2:-} ]] || die "$1 needs a value"
		printf -v "${1#--}" %s "$2"
		shift
		;;
	-h | --help)
		sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
		exit 0
		;;
	-*) die "unknown argument $1 (see --help)" ;;
	*) version=$1 ;;
	esac
	shift
done
[[ -n $dry ]] || die 'only --dry-run is there: this script publishes nothing'
[[ -n $version ]] || die 'name the version, such as 0.1.0'
out=$(realpath -m "${out:-release-$version}")
addresses=$(realpath -e "${addresses:-$(dirname "${BASH_SOURCE[0]}")/addresses}") || die "--addresses: there is no such file"
[[ -z $key ]] || key=$(realpath -e "$key") || die "--key: there is no such file"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in git jq openssl kubectl tar; do command -v "$tool" >/dev/null || die "$tool is missing"; done
changes=$(git status --porcelain)
[[ -z $changes ]] || die "the tree has changes that are not committed:"$'\n'"$changes"

# The version that a file has, by a pattern with one group.
same() {
	local found
	found=$(sed -n "s/$2/\1/p" "$1" | head -n 1)
	[[ $found == "$version" ]] || die "$1 has the version '$found', not $version; change one of them"
}
same Cargo.toml '^version = "\(.*\)"$'
same manifests/charts/ccm/Chart.yaml '^version: \(.*\)$'
same manifests/charts/ccm/Chart.yaml '^appVersion: v\(.*\)$'
section=$(awk -v head="## $version" '/^## / { on = ($0 == head || index($0, head " ") == 1); next } on' CHANGELOG.md)
[[ -n ${section//[[:space:]]/} ]] || die "CHANGELOG.md has no section '## $version', or it is empty"
unreleased=$(awk '/^## / { on = /^## Unreleased/; next } on' CHANGELOG.md)
[[ -z ${unreleased//[[:space:]]/} ]] || die "CHANGELOG.md has lines under '## Unreleased': move them to '## $version'"
missing=()
for address in REPOSITORY SECURITY_CONTACT IMAGES; do
	printf -v "$address" %s "$(sed -n "s/^$address=//p" "$addresses" | tail -n 1)"
	[[ -n ${!address} ]] || missing+=("$address")
done
((${#missing[@]} == 0)) || die "$addresses does not set ${missing[*]}; a release without them would name nobody. Set them there"
[[ -z $(ls -A "$out" 2>/dev/null) ]] || die "$out is not empty"
mkdir -p "$out"
if [[ -n $pictures ]]; then
	hack/prometheus.sh >/dev/null && command -v chromium >/dev/null ||
		die 'the pictures need prometheus and chromium (apt-get install prometheus chromium), or --without-pictures'
	cargo xtask dashboard --out "$out"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Another folder would be in the program, as the path of generated code.
export CARGO_TARGET_DIR=$work/target
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
# What `ccm version` says.
CCM_GIT_COMMIT=$(git rev-parse HEAD)
export CCM_GIT_COMMIT CCM_GIT_TREE_STATE=clean CCM_BUILD_DATE=$created
target=$(rustc -vV | sed -n 's/^host: //p')
case $target in
x86_64-*linux*) arch=amd64 ;;
aarch64-*linux*) arch=arm64 ;;
*) die "$target is not a platform of the image" ;;
esac
name=ccm-$version

# The same bytes for the same content, whoever packs it and when.
pack() {
	tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w "$@"
}
digest() { sha256sum "$1" | cut -d ' ' -f 1; }

for run in 1 2; do
	rm -rf "$CARGO_TARGET_DIR"
	hack/image.sh build "$features" "$work/root-$run" "$profile"
	pack --file "$work/layer-$run.tar" --directory "$work/root-$run" .
done
cmp "$work/layer-1.tar" "$work/layer-2.tar" || die 'two builds of the same commit differ: they are not reproducible'
install -m 0755 "$work/root-1/ccm" "$out/$name-linux-$arch"
for other in amd64 arm64; do
	[[ $other == "$arch" ]] || echo "release: not made: linux/$other, because this machine is linux/$arch: run it on such a machine too" >&2
done
echo 'release: not made: darwin, because there is no toolchain for it' >&2

# Adds a file to the layout, and prints its descriptor.
blob() {
	local sum size
	sum=$(digest "$1")
	size=$(stat --format=%s "$1")
	cp "$1" "$layout/blobs/sha256/$sum"
	jq -nc --arg type "$2" --arg digest "sha256:$sum" --argjson size "$size" '{mediaType: $type, digest: $digest, size: $size}'
}
layout=$work/layout
mkdir -p "$layout/blobs/sha256"
oci=application/vnd.oci.image
gzip -9n <"$work/layer-1.tar" >"$work/layer.tar.gz"
layer=$(blob "$work/layer.tar.gz" $oci.layer.v1.tar+gzip)
jq -nc --arg arch "$arch" --arg created "$created" --arg layer "sha256:$(digest "$work/layer-1.tar")" '{
	architecture: $arch, os: "linux", created: $created,
	config: {User: "65532:65532", Env: ["PATH=/usr/local/bin:/bin"], Entrypoint: ["/ccm"], ExposedPorts: {"10258/tcp": {}}},
	rootfs: {type: "layers", diff_ids: [$layer]}}' >"$work/config.json"
config=$(blob "$work/config.json" $oci.config.v1+json)
jq -nc --arg type $oci.manifest.v1+json --argjson config "$config" --argjson layer "$layer" --arg version "$version" \
	--arg revision "$(git rev-parse HEAD)" '{schemaVersion: 2, mediaType: $type, config: $config, layers: [$layer], annotations: {
	"org.opencontainers.image.version": $version, "org.opencontainers.image.revision": $revision}}' >"$work/manifest.json"
manifest=$(blob "$work/manifest.json" $oci.manifest.v1+json)
image=$(jq -r .digest <<<"$manifest")
jq -nc --argjson manifest "$manifest" --arg arch "$arch" --arg tag "v$version" '{schemaVersion: 2, manifests: [$manifest + {
	platform: {os: "linux", architecture: $arch}, annotations: {"org.opencontainers.image.ref.name": $tag}}]}' >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
pack --file "$out/$name-linux-$arch.oci.tar" --directory "$layout" .

# Of the release in place of the placeholders.
fill() { sed -i "s|https://ccm.invalid|$REPOSITORY/blob/v$version|; s|^\( *image: \)[^:]*:.*|\1$IMAGES@$image|" "$@"; }
cp -r manifests/charts/ccm "$work/ccm"
fill "$work/ccm/files/alerts.yaml"
sed -i "/^image:/,/^[a-z]*:\$/ { s|^  repository: \"\"|  repository: $IMAGES|; s|^  digest: \"\"|  digest: $image|; }" "$work/ccm/values.yaml"
grep -q "^  digest: $image\$" "$work/ccm/values.yaml" || die 'the values of the chart have no image'
printf 'home: %s\nsources: [%s]\n' "$REPOSITORY" "$REPOSITORY" >>"$work/ccm/Chart.yaml"
pack --file "$work/chart.tar" --directory "$work" ccm
gzip -9n <"$work/chart.tar" >"$out/$name.tgz"
IFS=, read -ra providers <<<"$features"
for provider in "${providers[@]}"; do
	kubectl kustomize "manifests/overlays/$provider" >"$out/$name-$provider.yaml"
	fill "$out/$name-$provider.yaml"
	grep -q " $IMAGES@$image\$" "$out/$name-$provider.yaml" || die "manifests/overlays/$provider has no image"
done

plugin=kubectl-$name-linux-$arch.tar.gz
mkdir "$work/plugin"
install -m 0755 "$work/root-1/ccm" "$work/plugin/kubectl-ccm"
cp LICENSE "$work/plugin"
pack --file "$work/plugin.tar" --directory "$work/plugin" kubectl-ccm LICENSE
gzip -9n <"$work/plugin.tar" >"$out/$plugin"
cat >"$out/plugin.yaml" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: ccm
spec:
  version: v$version
  homepage: $REPOSITORY
  shortDescription: Checks and explains the cloud-controller-manager
  description: |
    Explains why a node is tainted or a Service has no load balancer, shows what the cloud-controller-manager would write, and checks
    its installation. It finds the flags of the one that runs, and changes nothing.
  platforms:
  - selector: {matchLabels: {os: linux, arch: $arch}}
    uri: $REPOSITORY/releases/download/v$version/$plugin
    sha256: $(digest "$out/$plugin")
    bin: kubectl-ccm
END

# The packages in the program, and the checksums of the lock file: those of the workspace have none.
cargo tree --locked --package ccm --edges normal --no-default-features --features "kubernetes,$features" --target "$target" \
	--prefix none --format '{p}|{l}' | sed 's/^\([^ |]* [^ |]*\)[^|]*|/\1|/; s/ (\*)$//' | sort -u >"$work/packages"
awk -F '"' '/^name = / { name = $2 } /^version = / { version = $2 } /^checksum = / { print name " v" version "|" $2 }' Cargo.lock >"$work/sums"
jq -n --rawfile packages "$work/packages" --rawfile sums "$work/sums" --arg name "$name" --arg created "$created" \
	--arg content "$(digest "$work/packages")" '
	def rows: split("\n") | map(select(. != "") | split("|"));
	($sums | rows | map({key: .[0], value: .[1]}) | from_entries) as $sums
	| [$packages | rows[] | (.[0] | split(" v")) as [$package, $version] | {
		name: $package, versionInfo: $version, SPDXID: ("SPDXRef-" + $package + "-" + $version | gsub("[^A-Za-z0-9.-]"; "-")),
		downloadLocation: "NOASSERTION", licenseConcluded: "NOASSERTION", copyrightText: "NOASSERTION", filesAnalyzed: false,
		licenseDeclared: (.[1] // "" | gsub(" */ *"; " OR ") | if . == "" then "NOASSERTION" else . end),
		externalRefs: [{referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: "pkg:cargo/\($package)@\($version)"}],
		checksums: (if $sums[.[0]] then [{algorithm: "SHA256", checksumValue: $sums[.[0]]}] else [] end)}] as $all
	| ($all[] | select(.name == "ccm").SPDXID) as $root
	| {spdxVersion: "SPDX-2.3", dataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", name: $name,
		documentNamespace: "https://spdx.org/spdxdocs/\($name)-\($content)",
		creationInfo: {created: $created, creators: ["Tool: hack/release.sh"]}, packages: $all,
		relationships: ([{spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: $root}]
			+ [$all[] | select(.SPDXID != $root) | {spdxElementId: $root, relationshipType: "DEPENDS_ON", relatedSpdxElement: .SPDXID}])}
	' >"$out/$name.spdx.json"

printf '%s\n' "$section" >"$out/CHANGES.md"
(cd "$out" && sha256sum -- *) >"$work/subjects"
jq -n --rawfile subjects "$work/subjects" --arg image "$IMAGES" --arg sum "${image#sha256:}" \
	--arg script "$REPOSITORY/blob/v$version/hack/release.sh" --arg source "git+$REPOSITORY" --arg commit "$(git rev-parse HEAD)" \
	--arg rustc "$(rustc -V)" --arg lock "$(digest Cargo.lock)" --arg features "$features" --arg profile "$profile" \
	--arg target "$target" '{_type: "https://in-toto.io/Statement/v1",
	subject: ([$subjects | split("\n")[] | select(. != "") | split("  ") | {name: .[1], digest: {sha256: .[0]}}]
		+ [{name: $image, digest: {sha256: $sum}}]),
	predicateType: "https://slsa.dev/provenance/v1", predicate: {
		buildDefinition: {buildType: $script, externalParameters: {features: $features, profile: $profile, target: $target},
			resolvedDependencies: [{name: "commit", uri: $source, digest: {gitCommit: $commit}}, {name: "Cargo.lock", digest: {sha256: $lock}}]},
		runDetails: {builder: {id: $script, version: {rustc: $rustc}}}}}' >"$out/provenance.json"

(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
if [[ -n $key ]]; then openssl pkeyutl -sign -rawin -inkey "$key" -in "$out/SHA256SUMS" -out "$out/SHA256SUMS.sig"; fi
printf 'release: made in %s; the image is %s\n' "$out" "$image"
ls -l "$out"

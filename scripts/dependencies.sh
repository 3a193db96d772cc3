#!/usr/bin/env bash
# Installs what honeycrisp needs and this machine lacks; says what it does, asks nothing.
# The only list of system packages: quickstart, test and .ci/run all come here.
#
#   scripts/dependencies.sh GROUP...      groups: build test check sanitize cross bench
set -euo pipefail

# One package per word; a|b is the first of them that the distribution has.
apt_packages() {
  case $1 in
    build) echo g++ cmake ninja-build pkg-config ccache ca-certificates libfmt-dev libexpected-dev libcli11-dev \
                'libboost-json1.81-dev|libboost-json-dev' 'libcurl4-openssl-dev|libcurl4-gnutls-dev' libssl-dev libzip-dev \
                libedit-dev libpcre2-dev libutf8proc-dev ;;
    test) echo libgtest-dev libgmock-dev librapidcheck-dev python3 xz-utils git binutils 'clang-19|clang' libblocksruntime-dev ;;
    check) echo clang-format-19 clang-tidy-19 python3 git ;;
    sanitize) echo clang-19 libclang-rt-19-dev ;;
    cross) echo crossbuild-essential-arm64 qemu-user ;;
    bench) echo libbenchmark-dev ;;
    *) echo "dependencies: unknown group $1 (build test check sanitize cross bench)" >&2; return 2 ;;
  esac
}
brew_packages() {
  case $1 in
    build) echo cmake ninja pkg-config ccache fmt tl-expected cli11 boost openssl@3 libzip pcre2 utf8proc ;;
    test) echo googletest rapidcheck python3 xz ;;
    check) echo clang-format python3 ;;
    sanitize) echo llvm ;;
    bench) echo google-benchmark ;;
    *) echo "dependencies: unknown group $1 on macOS (build test check sanitize bench)" >&2; return 2 ;;
  esac
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else
    echo "dependencies: root or sudo is needed for: $*" >&2
    return 1
  fi
}

# Words of "$@" of which no alternative is installed.
missing_apt() {
  local installed word name found
  # shellcheck disable=SC2046  # the names are meant to be split
  installed=" $({ dpkg-query -W -f '${Status}=${Package} ' $(printf '%s ' "$@" | tr '|' ' ') 2>/dev/null || true; } |
    tr ' ' '\n' | sed -n 's/^installed=//p' | tr '\n' ' ') "
  for word in "$@"; do
    found=
    for name in ${word//|/ }; do [[ $installed == *" $name "* ]] && found=1; done
    [ -n "$found" ] || printf '%s\n' "$word"
  done
}

install_apt() {
  local missing word name choice packages=()
  mapfile -t missing < <(missing_apt "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "Installing with apt-get: ${missing[*]}" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
  for word in "${missing[@]}"; do
    choice=${word%%|*}
    for name in ${word//|/ }; do
      if apt-cache show "$name" >/dev/null 2>&1; then choice=$name; break; fi
    done
    packages+=("$choice")
  done
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
}

install_brew() {
  local installed name missing=()
  installed=" $(brew list --formula -1 | tr '\n' ' ') "
  for name in "$@"; do [[ $installed == *" $name "* || $installed == *" ${name%3}@3"* ]] || missing+=("$name"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "Installing with Homebrew: ${missing[*]}" >&2
  HOMEBREW_NO_AUTO_UPDATE=1 brew install --quiet "${missing[@]}" >&2
}

words=()
for group in "${@:-build}"; do
  if command -v apt-get >/dev/null; then list=$(apt_packages "$group"); else list=$(brew_packages "$group"); fi
  read -r -a more <<<"$list"
  words+=("${more[@]}")
done

if command -v apt-get >/dev/null; then
  install_apt "${words[@]}"
elif command -v brew >/dev/null; then
  install_brew "${words[@]}"
else
  echo "dependencies: neither apt-get nor Homebrew here; please install the equivalents of: ${words[*]}" >&2
  exit 1
fi

#!/usr/bin/env bash
# All that can be found out on a machine with a GPU that reaches no registry, in 10 minutes.
#
#   benchmarks/gpu.sh split DIR
#       Before: cuts the wheels in DIR that are above 56 MiB into NAME.whl.part-aa, … and writes DIR/SHA256SUMS, so that
#       they can be carried in several goes. The whole ones are removed.
#   benchmarks/gpu.sh run DIR [--plain] [--python python3] [--device cuda:0] [--out out] [--short]
#       There: puts the wheels in DIR together, checks them, installs them into an environment of its own, and runs
#       tests/gpu, `stoker selfcheck` and the measurements; python -m stoker_bench.gpu says which. Leaves
#       bench-gpu.json, bench-gpu.md, gpu.log in OUT. --plain: nothing of the given Python's own packages is used;
#       else they are (PyTorch, say), where DIR does not have them. --short: shows that it works, measures nothing.
#
# DIR needs Stoker's own wheel (pip wheel --no-deps -w DIR .) and those of what the machine lacks; they are installed
# without looking at what they ask for. The code that runs is this checkout's. The exit code is 0 if no part failed: a
# machine without a GPU skips, with reasons.
set -euo pipefail

readonly PART_BYTES=$((56 << 20))  # with a checkout beside it below 64 MiB
readonly TOTAL_S=600     # all of it
readonly INSTALL_S=180   # of that, at most
readonly SPARE_S=10      # of that, for putting the report together
REPO=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
readonly REPO

usage() {
    sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
}

fail() {
    echo "gpu.sh: $*" >&2
    exit 1
}

split_wheels() {
    local folder=$1 wheel
    cd -- "$folder"
    compgen -G '*.whl' >/dev/null || fail "no wheel in $folder"
    sha256sum -- *.whl >SHA256SUMS
    for wheel in *.whl; do
        if (($(stat --format=%s -- "$wheel") > PART_BYTES)); then
            split --bytes="$PART_BYTES" --suffix-length=2 -- "$wheel" "$wheel.part-"
            rm -- "$wheel"
        fi
    done
    du --apparent-size --block-size=1M -- *.whl* | sort --reverse --numeric-sort
}

# The wheels of $1, whole, in $2.
join_wheels() {
    local from=$1 to=$2 path name
    [[ -f $from/SHA256SUMS ]] || fail "$from/SHA256SUMS is missing; benchmarks/gpu.sh split $from writes it"
    for path in "$from"/*.whl; do
        [[ -e $path ]] && ln --symbolic -- "$(realpath -- "$path")" "$to/"
    done
    for path in "$from"/*.whl.part-aa; do
        [[ -e $path ]] || continue
        name=$(basename -- "$path" .part-aa)
        cat -- "$from/$name".part-* >"$to/$name"
    done
    (cd -- "$to" && sha256sum --check --strict --quiet -- "$(realpath -- "$from/SHA256SUMS")") ||
        fail "the wheels in $from are not those that were split (above: which, and how)"
    compgen -G "$to/stoker-*.whl" >/dev/null || fail "no wheel of stoker in $from: pip wheel --no-deps -w $from $REPO"
}

# An environment in $2 made by the Python $1, with that one's packages unless $3 is true.
make_environment() {
    local python=$1 env=$2 plain=$3
    "$python" -m venv --without-pip "$env"
    if [[ $plain == false ]]; then
        # --system-site-packages would mean those of the Python below, should this one be an environment itself.
        "$python" -c 'import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")' \
            >"$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/_below.pth"
    fi
}

run() {
    local wheels=$1 plain=false python=python3 device=cuda:0 out=out short=()
    shift
    while (($#)); do
        case $1 in
            --plain) plain=true ;;
            --short) short=(--short) ;;
            --python | --device | --out)
                (($# > 1)) || usage
                printf -v "${1#--}" '%s' "$2"
                shift
                ;;
            *) usage ;;
        esac
        shift
    done
    local scratch
    scratch=$(mktemp --directory)
    # shellcheck disable=SC2064  # the folder of now is meant
    trap "rm --recursive --force -- '$scratch'" EXIT
    mkdir --parents -- "$out" "$scratch/wheels"

    join_wheels "$wheels" "$scratch/wheels"
    make_environment "$python" "$scratch/env" "$plain"
    timeout "$INSTALL_S" "$python" -m pip --quiet --disable-pip-version-check --python "$scratch/env/bin/python" \
        install --no-index --no-deps --no-compile --no-cache-dir "$scratch"/wheels/*.whl ||
        fail "the wheels could not be installed (above: why)"
    echo "installed after $SECONDS s" >&2

    export PYTHONPATH=$REPO/loader:$REPO/service:$REPO/proto:$REPO/benchmarks
    export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
    "$scratch/env/bin/python" -m stoker_bench.gpu --device "$device" --out "$out" \
        --budget-s "$((TOTAL_S - SECONDS - SPARE_S))" "${short[@]}"
}

case ${1:-} in
    split)
        (($# == 2)) || usage
        split_wheels "$2"
        ;;
    run)
        (($# >= 2)) || usage
        run "${@:2}"
        ;;
    *) usage ;;
esac

#!/usr/bin/env bash
# The first 15 minutes, from a table of your own to a model that answers over HTTP. Run it in an empty folder:
#   pip install 'spreadout[export,serve]' && bash first_15_minutes.sh
set -euo pipefail
PYTHON=${PYTHON:-python3}

echo "1. A table: numbers in columns, the last one names the class. Put yours in its place."
"$PYTHON" - <<'EOF'
import csv
from sklearn.datasets import load_wine

wine = load_wine()
kinds = ["Barolo", "Grignolino", "Barbera"]
with open("wine.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow([*wine.feature_names, "kind"])
    rows.writerows([*x, kinds[y]] for x, y in zip(wine.data.tolist(), wine.target, strict=True))
EOF
head -n 2 wine.csv

echo "2. A config for it. Every kind gets a client of its own, as no column says whose a row is."
spreadout init wine.csv --label kind --out wine.toml
cat wine.toml

echo "3. What is in it, before anything is trained."
spreadout data describe wine.toml

echo "4. Train: three clients, each with one kind of wine, none sees another's."
spreadout run wine.toml rounds=40 --out runs/wine

echo "5. Ask the model, on the command line."
head -n 3 wine.csv > new.csv
spreadout predict runs/wine --input new.csv --top 2

echo "6. A page to look at: wine.html."
spreadout report runs/wine -o wine.html

echo "7. For other programs: the model as ONNX, with its classes and a card."
spreadout export runs/wine --to onnx --out wine-onnx
ls wine-onnx

echo "8. Over HTTP."
spreadout serve runs/wine --port 0 > serve.log 2>&1 &
SERVER=$!
trap 'kill $SERVER 2>/dev/null || true' EXIT
"$PYTHON" - <<'EOF'
import csv, json, re, sys, time, urllib.request

for _ in range(600):  # until it answers
    with open("serve.log") as file:
        said = file.read()
    try:
        if found := re.search(r"http://\S+", said):
            urllib.request.urlopen(f"{found[0]}/health")
            break
    except OSError:
        pass
    time.sleep(0.1)
else:
    sys.exit(f"the server does not answer: {said}")
with open("new.csv", newline="") as file:
    _, *rows = csv.reader(file)
body = json.dumps({"inputs": [[float(x) for x in row[:-1]] for row in rows], "top": 1}).encode()
asked = urllib.request.Request(f"{found[0]}/predict", body, {"Content-Type": "application/json"})
for (best,) in json.load(urllib.request.urlopen(asked))["results"]:
    print("over HTTP:", best)
EOF
echo "done"

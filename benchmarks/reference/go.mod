module headrace/benchmarks/reference

go 1.26.0

require (
	github.com/tinylib/msgp v1.6.5
	github.com/twmb/franz-go v1.22.2
	golang.org/x/crypto v0.58.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

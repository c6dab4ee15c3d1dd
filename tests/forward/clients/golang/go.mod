module headrace/tests/forward/clients

go 1.24.0

require (
	github.com/IBM/fluent-forward-go v0.4.0
	github.com/fluent/fluent-logger-golang v1.10.2
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/websocket v1.4.2 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.4.0 // indirect
)
